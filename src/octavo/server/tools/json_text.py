"""JSON (RFC 8259), scanned while it arrives and passed on as it was written.

One thing is mended: a raw control character inside a string (a model that writes code forgets to escape its line
breaks) is passed on as its escape, so that what was accepted can be parsed.
"""

import json
import re
from collections.abc import Callable

from octavo.server.tools.reader import MalformedCallError, Parsing, Sink, TextReader, read_whole, result_of

MAX_NESTING = 128
"""Deeper JSON is refused: parsers of the clients have their limits."""

MAX_NAME = 2048
"""Longest literal of a name, escapes and all."""

_STRING_RUN = re.compile(r'[^"\\\x00-\x1f]+')
_SPACE = re.compile(r"[ \t\r\n]+")
_HEX = re.compile(r"[0-9a-fA-F]")
_CLOSERS = {"{": "}", "[": "]"}
_WORDS = {"t": "true", "f": "false", "n": "null"}

_DIGITS = "0123456789"
_FRACTION_OR_EXPONENT = {".": "point", "e": "exponent", "E": "exponent"}
_NUMBER = {
    "start": {"-": "minus", "0": "zero", **dict.fromkeys(_DIGITS[1:], "integer")},
    "minus": {"0": "zero", **dict.fromkeys(_DIGITS[1:], "integer")},
    "zero": _FRACTION_OR_EXPONENT,
    "integer": {**dict.fromkeys(_DIGITS, "integer"), **_FRACTION_OR_EXPONENT},
    "point": dict.fromkeys(_DIGITS, "fraction"),
    "fraction": {**dict.fromkeys(_DIGITS, "fraction"), "e": "exponent", "E": "exponent"},
    "exponent": {"+": "sign", "-": "sign", **dict.fromkeys(_DIGITS, "power")},
    "sign": dict.fromkeys(_DIGITS, "power"),
    "power": dict.fromkeys(_DIGITS, "power"),
}
"""The automaton of RFC 8259's number: state -> character -> state."""
_NUMBER_ENDS = frozenset(("zero", "integer", "fraction", "power"))


def json_value(reader: TextReader, sink: Sink) -> Parsing[None]:
    """Passes on one value; it begins at the next character.

    What has been passed on is the beginning of a valid value at any time, and a valid value at the end.

    Raises:
        MalformedCallError: at the first character that cannot stand where it stands, which is not read.
    """
    closers: list[str] = []
    while True:
        opened = yield from _opening_or_scalar(reader, sink)
        if opened and not (yield from _enter(reader, sink, closers, opened)):
            continue
        if not (yield from _to_next_value(reader, sink, closers)):
            return


def json_object(reader: TextReader, sink: Sink) -> Parsing[None]:
    """Like `json_value`, for an object.

    Raises:
        MalformedCallError: also if the value is something else.
    """
    if (yield from reader.peek()) != "{":
        raise MalformedCallError("no object")
    yield from json_value(reader, sink)


def json_string(reader: TextReader) -> Parsing[str]:
    """The text of a string literal that begins at the next character.

    Raises:
        MalformedCallError: there is none, or its text is no Unicode (half a surrogate pair).
    """
    pieces: list[str] = []
    yield from _string(reader, pieces.append)
    return _decoded("".join(pieces))


def json_name(reader: TextReader, may_begin: Callable[[str], bool]) -> Parsing[str]:
    """Like `json_string`, but gives up as soon as no name begins so. (One with escapes is known only at its end.)

    Raises:
        MalformedCallError: also if it gives up.
    """
    name, is_plain = "", True

    def add(text: str) -> None:
        nonlocal name, is_plain
        name += text
        is_plain = is_plain and "\\" not in text

    yield from _word(reader, lambda text: None, '"')
    while (char := (yield from reader.peek())) != '"':
        if len(name) > MAX_NAME or (is_plain and char not in ("", "\\") and not may_begin(name + char)):
            raise MalformedCallError("no such name")
        yield from _string_part(reader, add)
    reader.skip()
    return _decoded(f'"{name}"')


def mended_object(text: str) -> str:
    """A whole text that is one JSON object, as `json_value` passes it on.

    Raises:
        MalformedCallError: it is something else.
    """
    reader, pieces = read_whole(text.strip(" \t\r\n")), list[str]()
    result_of(json_object(reader, pieces.append))
    if result_of(reader.peek()):
        raise MalformedCallError("text behind the object")
    return "".join(pieces)


def quoted(text: str) -> str:
    """Text as a JSON string. Pieces of a text that are quoted apart join to the whole, without their quotes."""
    return json.dumps(text, ensure_ascii=False)


def _opening_or_scalar(reader: TextReader, sink: Sink) -> Parsing[str]:
    """Passes on a scalar, or the bracket that opens a container, which is returned."""
    char = yield from reader.peek()
    if char in _CLOSERS:
        reader.move(sink)
        return char
    if char == '"':
        yield from _string(reader, sink)
    elif char in _WORDS:
        yield from _word(reader, sink, _WORDS[char])
    else:
        yield from _number(reader, sink)
    return ""


def _enter(reader: TextReader, sink: Sink, closers: list[str], opened: str) -> Parsing[bool]:
    """Goes on behind an opening bracket; True if the container is empty and so already over."""
    if len(closers) == MAX_NESTING:
        raise MalformedCallError("nested too deeply")
    closer = _CLOSERS[opened]
    yield from reader.run(_SPACE, sink)
    if (yield from reader.peek()) == closer:
        reader.move(sink)
        return True
    closers.append(closer)
    if opened == "{":
        yield from _key(reader, sink)
    return False


def _to_next_value(reader: TextReader, sink: Sink, closers: list[str]) -> Parsing[bool]:
    """Goes on behind a value, to the next one; False if there is none because the outermost container is closed."""
    while closers:
        yield from reader.run(_SPACE, sink)
        char = yield from reader.peek()
        if char == ",":
            reader.move(sink)
            yield from reader.run(_SPACE, sink)
            if closers[-1] == "}":
                yield from _key(reader, sink)
            return True
        if char != closers[-1]:
            raise MalformedCallError("neither a comma nor the end")
        reader.move(sink)
        closers.pop()
    return False


def _key(reader: TextReader, sink: Sink) -> Parsing[None]:
    yield from _string(reader, sink)
    yield from reader.run(_SPACE, sink)
    yield from _word(reader, sink, ":")
    yield from reader.run(_SPACE, sink)


def _word(reader: TextReader, sink: Sink, word: str) -> Parsing[None]:
    for expected in word:
        if (yield from reader.peek()) != expected:
            raise MalformedCallError(f"no {word}")
        reader.move(sink)


def _number(reader: TextReader, sink: Sink) -> Parsing[None]:
    state = "start"
    while (following := _NUMBER[state].get((yield from reader.peek()))) is not None:
        reader.move(sink)
        state = following
    if state not in _NUMBER_ENDS:
        raise MalformedCallError("no number")


def _string(reader: TextReader, sink: Sink) -> Parsing[None]:
    yield from _word(reader, sink, '"')
    while True:
        yield from reader.run(_STRING_RUN, sink)
        if (yield from reader.peek()) == '"':
            reader.move(sink)
            return
        yield from _string_part(reader, sink)


def _string_part(reader: TextReader, sink: Sink) -> Parsing[None]:
    """One character of a string, or one escape."""
    char = yield from reader.peek()
    if char == "\\":
        yield from _escape(reader, sink)
    elif char:
        sink(quoted(reader.skip())[1:-1])
    else:
        raise MalformedCallError("the text ends inside a string")


def _decoded(literal: str) -> str:
    text: str = json.loads(literal)
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise MalformedCallError("half a surrogate pair")
    return text


def _escape(reader: TextReader, sink: Sink) -> Parsing[None]:
    reader.move(sink)
    char = yield from reader.peek()
    if not char or char not in '"\\/bfnrtu':
        raise MalformedCallError("no such escape")
    reader.move(sink)
    for _ in range(4 if char == "u" else 0):
        if not _HEX.match((yield from reader.peek())):
            raise MalformedCallError("no hexadecimal digit")
        reader.move(sink)
