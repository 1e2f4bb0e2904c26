"""Python literals, scanned while they arrive and passed on as JSON. Nothing is ever evaluated.

The literals are those of https://docs.python.org/3/reference/lexical_analysis.html that have a JSON counterpart:
strings (all four quotes, no prefixes), numbers, True, False, None, lists, tuples and dicts with string keys. JSON's own
words are taken, too: models mix them.
"""

import math
import re

from octavo.server.tools.json_text import MAX_NESTING, quoted
from octavo.server.tools.reader import MalformedCallError, Parsing, Sink, TextReader

_QUOTES = ('"', "'")
_RUNS = {quote: re.compile(rf"[^{quote}\\]+") for quote in _QUOTES}
_WORD_RUN = re.compile(r"\w+")
_NUMBER_RUN = re.compile(r"[\w.+-]+")
_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS = {"True": "true", "true": "true", "False": "false", "false": "false", "None": "null", "null": "null"}
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_ESCAPES = dict(zip("abfnrtv0\\'\"", "\a\b\f\n\r\t\v\0\\'\"", strict=True))
_HEX = re.compile(r"[0-9a-fA-F]+")
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}


def python_value(reader: TextReader, sink: Sink, depth: int = 0) -> Parsing[None]:
    """Passes on one value as JSON; it begins at the next character.

    Raises:
        MalformedCallError: at text that is no such literal.
    """
    char = yield from reader.peek()
    if char in _QUOTES:
        yield from python_string(reader, sink)
    elif char in _BRACKETS:
        if depth == MAX_NESTING:
            raise MalformedCallError("nested too deeply")
        yield from _container(reader, sink, depth)
    elif char.isalpha():
        word = yield from reader.word(_WORD_RUN)
        if word not in _WORDS:
            raise MalformedCallError("not a literal", word)
        sink(_WORDS[word])
    else:
        sink(_as_json_number((yield from reader.word(_NUMBER_RUN))))


def python_string(reader: TextReader, sink: Sink) -> Parsing[None]:
    """Passes on a string literal as a JSON string."""
    quote = yield from reader.peek()
    triple = yield from reader.accept(quote * 3)
    if not triple:
        reader.skip()
    sink('"')
    while True:
        yield from reader.run(_RUNS[quote], lambda text: sink(quoted(text)[1:-1]))
        char = yield from reader.peek()
        if not char:
            raise MalformedCallError("the text ends inside a string")
        if char == "\\":
            yield from _escape(reader, sink)
        elif not triple or (yield from reader.accept(quote * 3)):
            break
        else:
            sink(quoted(reader.skip())[1:-1])
    if not triple:
        reader.skip()
    sink('"')


def _container(reader: TextReader, sink: Sink, depth: int) -> Parsing[None]:
    """A list, a tuple or a dict."""
    opening = reader.skip()
    if opening == "(":
        yield from _parentheses(reader, sink, depth)
        return
    sink(opening)
    yield from _items(reader, sink, _BRACKETS[opening], depth)
    sink(_BRACKETS[opening])


def _parentheses(reader: TextReader, sink: Sink, depth: int) -> Parsing[None]:
    """A tuple, which is a list in JSON, or one value in parentheses; known at the end, so it is held back till then."""
    pieces: list[str] = []
    try:
        is_single = (yield from _items(reader, pieces.append, ")", depth)) == (1, 0)
    except MalformedCallError as error:
        raise MalformedCallError(str(error), "(" + "".join(pieces) + error.unread) from None
    text = "".join(pieces)
    sink(text if is_single else f"[{text}]")


def _items(reader: TextReader, sink: Sink, closing: str, depth: int) -> Parsing[tuple[int, int]]:
    """What stands in brackets, and the closing one, which is not passed on; the numbers of items and of commas."""
    count, commas = 0, 0
    while True:
        yield from reader.space()
        if (yield from reader.accept(closing)):
            return count, commas
        if count > commas:
            raise MalformedCallError("no comma")
        if count:
            sink(", ")
        if closing == "}":
            yield from _key(reader, sink)
        yield from python_value(reader, sink, depth + 1)
        count += 1
        yield from reader.space()
        commas += bool((yield from reader.accept(",")))


def _key(reader: TextReader, sink: Sink) -> Parsing[None]:
    if (yield from reader.peek()) not in _QUOTES:
        raise MalformedCallError("a key that is no string")
    yield from python_string(reader, sink)
    yield from reader.space()
    yield from reader.expect(":")
    yield from reader.space()
    sink(": ")


def _escape(reader: TextReader, sink: Sink) -> Parsing[None]:
    r"""Python's escapes; an unknown one stands for itself, backslash and all. `\u` escapes are JSON's, too."""
    backslash = reader.skip()
    char = yield from reader.peek()
    if not char:
        raise MalformedCallError("the text ends inside a string")
    reader.skip()
    if char in _ESCAPES:
        sink(quoted(_ESCAPES[char])[1:-1])
    elif char in _HEX_DIGITS:
        sink((yield from _code_point(reader, char)))
    elif char != "\n":
        sink(quoted(backslash + char)[1:-1])


def _code_point(reader: TextReader, kind: str) -> Parsing[str]:
    digits = ""
    while len(digits) < _HEX_DIGITS[kind] and _HEX.match((yield from reader.peek())):
        digits += reader.skip()
    if len(digits) < _HEX_DIGITS[kind]:
        raise MalformedCallError("too few hexadecimal digits", f"\\{kind}{digits}")
    if kind == "u":
        return "\\u" + digits
    if int(digits, 16) > 0x10FFFF or 0xD800 <= int(digits, 16) <= 0xDFFF:
        raise MalformedCallError("no such character", f"\\{kind}{digits}")
    return quoted(chr(int(digits, 16)))[1:-1]


def _as_json_number(text: str) -> str:
    """A Python number in JSON: as it is written where JSON writes it so."""
    if _JSON_NUMBER.fullmatch(text):
        return text
    try:
        return str(int(text, 0))
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        raise MalformedCallError("not a number", text) from None
    if not math.isfinite(number):
        raise MalformedCallError("not a finite number", text)
    return repr(number)
