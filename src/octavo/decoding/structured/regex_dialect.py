r"""Regular expressions: the subset on which ECMA-262, Python and RE2 agree, translated for the backend.

Supported: literals; `.`; classes `[a-z]`, `[^a-z]`; `\d \D \w \W \s \S`; `\t \n \r \f \v \0 \xHH \uHHHH \u{H...}`;
a backslash and punctuation; `\p{..}`, `\P{..}`; `|`; groups `( )`, `(?: )`, `(?<name> )`, `(?P<name> )`;
`* + ? {m} {m,} {m,n}`, lazy or not. `^` and `$` may stand at the ends of the expression and of its outermost
alternatives.

Where the dialects differ on what `\d`, `\w`, `\s` and `.` mean, what is generated matches in all of them: `\d` gives
ASCII digits, `[^\d]` no digit of any script.
"""

from dataclasses import dataclass

from octavo.decoding.structured.limits import MAX_NESTING, MAX_REGEX_SIZE
from octavo.decoding.structured.problem import ShapeError

ANYTHING = "(?s:.*)"
UNWRITABLE = r"\x00-\x07\x0b\x0e-\x1f\x7f"
"""Items of a class: see `is_writable`."""

_WORD_WIDE = r"\p{L}\p{M}\p{N}\p{Pc}"
_SPACE_NARROW = r"\t\n\x0b\x0c\r\x20"
_SPACE_WIDE = r"\s\x1c-\x1f\x{feff}"
_NARROW = {
    "d": "0-9",
    "D": r"\P{Nd}",
    "w": "0-9A-Za-z_",
    "W": f"[^{_WORD_WIDE}]",
    "s": _SPACE_NARROW,
    "S": f"[^{_SPACE_WIDE}]",
}
"""Class escape -> what all dialects take for it."""
_WIDE = {
    "d": r"\p{Nd}",
    "D": "[^0-9]",
    "w": _WORD_WIDE,
    "W": "[^0-9A-Za-z_]",
    "s": _SPACE_WIDE,
    "S": f"[^{_SPACE_NARROW}]",
}
"""Class escape -> what any of them takes for it."""
_DOT = r"[^\n\r\x{2028}\x{2029}]"
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_GROUP_HEADS = ("?:", "?P<", "?<")


def full_match(source: str) -> str:
    """The backend's expression for texts of which all matches `source`.

    Raises:
        ShapeError: it is no expression of this dialect, or too large; names the character.
    """
    return "|".join(alternative.text for alternative in _Parser(source, unwritable="").parse())


def search_in_json(source: str) -> str:
    """The backend's expression for texts that hold a match of `source` somewhere and are written as JSON strings.

    Characters that are not written there (`UNWRITABLE`) are taken out of every class. Left in, they make the library
    allow the escape of a character that the class does not have: `[^"]` would take a quote.

    Raises:
        ShapeError: as above.
    """
    return "|".join(
        f"{'' if a.at_start else ANYTHING}(?:{a.text}){'' if a.at_end else ANYTHING}"
        for a in _Parser(source, UNWRITABLE).parse()
    )


def is_writable(char: str) -> bool:
    """Whether JSON strings here may hold the character: control characters need an escape of one letter."""
    return not (char in "\x7f" or (char < " " and char not in "\b\f\n\r\t") or "\ud800" <= char <= "\udfff")


@dataclass(frozen=True)
class _Alternative:
    text: str
    size: int
    at_start: bool
    """It began with `^`."""
    at_end: bool
    """It ended with `$`."""


class _Parser:
    """Reads one expression from left to right."""

    def __init__(self, source: str, unwritable: str) -> None:
        self._source = source
        self._unwritable = unwritable
        """Items of a class of the characters that no class has; a text of one is refused."""
        self._at = 0
        self._depth = 0

    def parse(self) -> list[_Alternative]:
        alternatives = self._alternatives()
        if self._at < len(self._source):
            raise self._problem("a closing parenthesis without an opening one")
        return alternatives

    def _alternatives(self) -> list[_Alternative]:
        found = [self._alternative()]
        while self._take("|"):
            found.append(self._alternative())
        return found

    def _alternative(self) -> _Alternative:
        pieces: list[str] = []
        size = 0
        at_start = self._take("^")
        at_end = False
        while (char := self._peek()) not in ("", "|", ")"):
            if char == "^" or at_end:
                raise self._problem("an anchor in the middle; only the ends of an alternative may have one")
            if self._take("$"):
                at_end = True
                continue
            text, one = self._repeated(*self._atom())
            pieces.append(text)
            size += one
            if size > MAX_REGEX_SIZE:
                raise self._problem(f"with its repetitions written out it has more than {MAX_REGEX_SIZE} characters")
        if self._depth and (at_start or at_end):
            raise self._problem("an anchor inside a group; write it at the end of the whole expression")
        return _Alternative("".join(pieces), size, at_start, at_end)

    def _atom(self) -> tuple[str, int]:
        """An atom and its size."""
        char = self._peek()
        if char == "(":
            return self._group()
        self._at += 1
        if char == "[":
            return self._class(), 1
        if char == ".":
            return self._without_unwritable(_DOT), 1
        if char == "\\":
            return self._escape(), 1
        if char in "*+?":
            raise self._problem("a repetition with nothing to repeat", back=1)
        if char in "{}]":
            raise self._problem(f"write \\{char} for the character itself", back=1)
        return self._literal(char), 1

    def _literal(self, char: str) -> str:
        if self._unwritable and not is_writable(char):
            raise self._problem(f"U+{ord(char):04X} is not written in JSON here", back=1)
        return quoted(char)

    def _without_unwritable(self, text: str) -> str:
        return f"[{text}&&[^{self._unwritable}]]" if self._unwritable else text

    def _group(self) -> tuple[str, int]:
        self._at += 1
        if self._peek() == "?":
            head = next((head for head in _GROUP_HEADS if self._source.startswith(head, self._at)), None)
            if head is None or self._source.startswith(("?<=", "?<!"), self._at):
                raise self._problem("look-around, flags and conditions are not supported")
            self._at += len(head)
            if head != "?:":
                self._group_name()
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self._problem(f"groups nest deeper than {MAX_NESTING}")
        alternatives = self._alternatives()
        self._depth -= 1
        if not self._take(")"):
            raise self._problem("an opening parenthesis without a closing one")
        return f"(?:{'|'.join(a.text for a in alternatives)})", max(1, sum(a.size for a in alternatives))

    def _group_name(self) -> None:
        end = self._source.find(">", self._at)
        if end < 0 or not self._source[self._at : end].isidentifier():
            raise self._problem("a group name must be an identifier")
        self._at = end + 1

    def _repeated(self, atom: str, size: int) -> tuple[str, int]:
        low, high = self._counts()
        if low is None:
            return atom, size
        if high is not None and high < low:
            raise self._problem(f"a repetition from {low} to {high}")
        self._take("?")  # lazy or not, the texts are the same
        if self._peek() in ("*", "+", "?", "{"):
            raise self._problem("a repetition of a repetition; use a group")
        times = f"{{{low},{'' if high is None else high}}}"
        return f"(?:{atom}){times}", size * max(1, low + 1 if high is None else high)

    def _counts(self) -> tuple[int | None, int | None]:
        """(least, most) of the repetition that stands here; least is None if there is none, most if it has no end."""
        for sign, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return counts
        if not self._take("{"):
            return None, None
        low = self._number()
        high = (self._number(optional=True) if self._peek() != "}" else None) if self._take(",") else low
        if not self._take("}"):
            raise self._problem("a repetition is {m}, {m,} or {m,n}; write \\{ for the character itself")
        return low, high

    def _number(self, *, optional: bool = False) -> int:
        begin = self._at
        while self._peek() in tuple("0123456789"):
            self._at += 1
        digits = self._source[begin : self._at]
        if not digits or len(digits) > 7:
            raise self._problem("a repetition is {m}, {m,} or {m,n}; write \\{ for the character itself")
        return int(digits)

    def _class(self) -> str:
        """A class, behind its opening bracket."""
        is_negative = self._take("^")
        items: list[str] = []
        while not self._take("]"):
            if not self._peek():
                raise self._problem("a class without a closing bracket")
            if self._source.startswith("[:", self._at):
                raise self._problem("POSIX classes are not supported; write \\d, \\w or the characters")
            items.append(self._class_item(_WIDE if is_negative else _NARROW))
        if not items:
            raise self._problem("an empty class")
        return self._without_unwritable(f"[{'^' if is_negative else ''}{''.join(items)}]")

    def _class_item(self, escapes: dict[str, str]) -> str:
        """One item of a class: a character, a range, or an escape that stands for many."""
        low = self._class_character(escapes)
        is_range = self._peek() == "-" and self._source[self._at + 1 : self._at + 2] not in ("]", "")
        if not is_range:
            return low if len(low) > 1 else quoted(low)
        if len(low) > 1:
            raise self._problem("a range that begins with a class")
        self._at += 1
        high = self._class_character(escapes)
        if len(high) > 1 or ord(high) < ord(low):
            raise self._problem("a range that ends before it begins, or with a class")
        return f"{quoted(low)}-{quoted(high)}"

    def _class_character(self, escapes: dict[str, str]) -> str:
        """One character, or text of a class of several."""
        char = self._source[self._at]
        self._at += 1
        if char != "\\":
            return char
        kind = self._peek()
        if kind in tuple(escapes):
            self._at += 1
            return escapes[kind]
        if kind in ("p", "P"):
            return self._property()
        return self._character_escape()

    def _escape(self) -> str:
        """An escape outside classes, behind its backslash."""
        kind = self._peek()
        if kind in tuple(_NARROW):
            self._at += 1
            return self._without_unwritable(f"[{_NARROW[kind]}]")
        if kind in ("p", "P"):
            return self._without_unwritable(self._property())
        return self._literal(self._character_escape())

    def _property(self) -> str:
        end = self._source.find("}", self._at)
        name = self._source[self._at + 2 : end]
        if self._source[self._at + 1 : self._at + 2] != "{" or end < 0 or not name.replace("_", "").isalpha():
            raise self._problem("a Unicode property is written \\p{Name}")
        text = f"\\{self._source[self._at]}{{{name}}}"
        self._at = end + 1
        return text

    def _character_escape(self) -> str:
        """The character that an escape stands for."""
        kind = self._peek()
        self._at += 1
        if kind in _CONTROLS and not (kind == "0" and self._peek().isdigit()):
            return _CONTROLS[kind]
        if kind == "x":
            return self._code_point(2)
        if kind == "u":
            return self._code_point(4)
        if not kind or (kind.isascii() and kind.isalnum()):
            what = "back-references are not supported" if kind.isdigit() else "not supported"
            raise self._problem(f"\\{kind}: {what}", back=1)
        return kind

    def _code_point(self, num_digits: int) -> str:
        if num_digits == 4 and self._take("{"):
            end = self._source.find("}", self._at)
            digits, self._at = self._source[self._at : max(end, self._at)], end + 1 if end >= 0 else self._at
        else:
            digits = self._source[self._at : self._at + num_digits]
            self._at += num_digits
            if len(digits) < num_digits:
                digits = ""
        try:
            code = int(digits, 16) if digits.isalnum() else -1
        except ValueError:
            code = -1
        if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise self._problem("not the number of a character")
        return chr(code)

    def _peek(self) -> str:
        return self._source[self._at : self._at + 1]

    def _take(self, text: str) -> bool:
        if self._peek() != text:
            return False
        self._at += 1
        return True

    def _problem(self, problem: str, *, back: int = 0) -> ShapeError:
        return ShapeError(f"regular expression, character {self._at - back}: {problem}")


def quoted(char: str) -> str:
    """A character that stands for itself, inside a class and outside."""
    return char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):x}}}"
