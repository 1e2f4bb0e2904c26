"""Text that arrives in pieces, read as if it were whole.

Parsers here are generators. They ask a TextReader for what they need next, and it suspends them (`yield`) when the
answer depends on text that has not come. So each parser is straight-line code about the whole text, and what it does
cannot depend on how the text was cut.
"""

import re
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

T = TypeVar("T")
Parsing = Generator[None, None, T]
"""A parser at work: yields when it needs more text, returns its result."""
Sink = Callable[[str], None]
"""Takes text that is passed on, in as many pieces as it happens to come."""

MAX_WORD = 256
"""Longest name that a call may have where nothing but the next character says where it ends."""
UNLIMITED = 2**40
"""A limit that no text reaches."""
_SPACE = re.compile(r"[ \t\r\n]+")


class MalformedCallError(Exception):
    """The text is no call, from here on or from its beginning. Never leaves the parser.

    Attributes:
        unread: text that has been read in vain and is in no event; it counts only behind the start of a call.
    """

    def __init__(self, problem: str, unread: str = "") -> None:
        self.unread = unread
        super().__init__(problem)


class MarkerSet:
    """Strings to look for.

    No marker may stand inside another: then the first one to be completed is also the first one to begin, and a search
    that sees the text in pieces finds what a search in the whole text finds.
    """

    def __init__(self, markers: Sequence[str]) -> None:
        """
        Raises:
            ValueError: an empty marker, or one inside another.
        """
        for marker in markers:
            if not marker or any(marker in other for other in markers if other is not marker):
                raise ValueError(f"{marker!r} is empty or stands inside another marker of {tuple(markers)}")
        self._pattern = re.compile("|".join(re.escape(marker) for marker in markers) or r"(?!)")
        self._beginnings = frozenset(marker[:size] for marker in markers for size in range(1, len(marker)))
        self._longest = max(map(len, markers), default=0)

    def find(self, text: str, start: int) -> re.Match[str] | None:
        """The first marker in text[start:]."""
        return self._pattern.search(text, start)

    def held(self, text: str, start: int) -> int:
        """Length of the longest end of text[start:] that may be the beginning of a marker."""
        for size in range(min(self._longest - 1, len(text) - start), 0, -1):
            if text[len(text) - size :] in self._beginnings:
                return size
        return 0


class TextReader:
    """Unread text. Every method that is a generator may be suspended; none looks at a character twice, but for the
    beginning of a marker."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._dropped = 0
        """Characters that are read and no longer in memory."""
        self._closed = False
        self._record: list[str] | None = None

    @property
    def num_kept(self) -> int:
        """Characters in memory that may be looked at again: when a parser waits at most the last piece and the
        beginning of a marker before it."""
        return len(self._text)

    @property
    def position(self) -> int:
        """Characters that have been read."""
        return self._dropped + self._at

    @property
    def is_closed(self) -> bool:
        """No more text will come."""
        return self._closed

    def push(self, text: str) -> None:
        """More text has come."""
        self._dropped += self._at
        self._text = self._text[self._at :] + text
        self._at = 0

    def close(self) -> None:
        """No more text will come."""
        self._closed = True

    def record(self, opening: str = "") -> None:
        """Keeps what is read from here on, behind `opening`, for `recorded`."""
        self._record = [opening]

    def recorded(self) -> str:
        """Hands out what was kept, and stops keeping."""
        text, self._record = "".join(self._record or ()), None
        return text

    def peek(self) -> Parsing[str]:
        """The next character, unread; the empty string at the end of the text."""
        while self._at == len(self._text):
            if self._closed:
                return ""
            yield
        return self._text[self._at]

    def move(self, sink: Sink) -> None:
        """Passes on the character that `peek` saw."""
        sink(self._consume(self._at + 1))

    def skip(self) -> str:
        """Reads the character that `peek` saw."""
        return self._consume(self._at + 1)

    def run(self, characters: re.Pattern[str], sink: Sink) -> Parsing[None]:
        """Passes on characters of a class, such as `[a-z]+`, as long as they come."""
        while True:
            match = characters.match(self._text, self._at)
            if match is not None:
                sink(self._consume(match.end()))
            if self._at < len(self._text) or self._closed:
                return
            yield

    def word(self, characters: re.Pattern[str], limit: int = MAX_WORD) -> Parsing[str]:
        """Reads characters of a class as long as they come; may be empty.

        Raises:
            MalformedCallError: there are more than `limit`, of which so many have been read.
        """
        pieces: list[str] = []
        room = limit
        while (yield from self.peek()):
            match = characters.match(self._text, self._at, self._at + max(room, 1))
            if match is None:
                break
            if not room:
                raise MalformedCallError("too long for a name", "".join(pieces))
            pieces.append(self._consume(match.end()))
            room -= len(pieces[-1])
        return "".join(pieces)

    def name(self, characters: re.Pattern[str], may_begin: Callable[[str], bool]) -> Parsing[str]:
        """Like `word`, but reads only as long as what it has is the beginning of some name."""
        name = ""
        while characters.match((yield from self.peek())) and may_begin(name + self._text[self._at]):
            name += self.skip()
        return name

    def space(self) -> Parsing[None]:
        """Reads over white space (that of JSON)."""
        yield from self.run(_SPACE, _drop)

    def accept(self, *literals: str) -> Parsing[str]:
        """Reads the literal that stands next and returns it; if none does, reads nothing and returns an empty string.
        Waits only while one of them may still come. No literal may begin with another."""
        longest = max(map(len, literals))
        while True:
            rest = self._text[self._at : self._at + longest]
            for literal in literals:
                if rest.startswith(literal):
                    return self._consume(self._at + len(literal))
            if self._closed or not any(literal.startswith(rest) for literal in literals):
                return ""
            yield

    def expect(self, *literals: str) -> Parsing[str]:
        """Like `accept`.

        Raises:
            MalformedCallError: none of them stands next.
        """
        literal = yield from self.accept(*literals)
        if not literal:
            raise MalformedCallError(f"no {' or '.join(literals)}")
        return literal

    def until(self, markers: MarkerSet, sink: Sink) -> Parsing[str]:
        """Passes on the text before the next marker, reads the marker and returns it; the empty string if the text ends
        without one. Text that cannot be part of a marker is passed on at once."""
        while True:
            match = markers.find(self._text, self._at)
            if match is not None:
                self._pass_on(match.start(), sink)
                return self._consume(match.end())
            held = 0 if self._closed else markers.held(self._text, self._at)
            self._pass_on(len(self._text) - held, sink)
            if self._closed:
                return ""
            yield

    def _pass_on(self, end: int, sink: Sink) -> None:
        if end > self._at:
            sink(self._consume(end))

    def _consume(self, end: int) -> str:
        taken, self._at = self._text[self._at : end], end
        if self._record is not None:
            self._record.append(taken)
        return taken


def _drop(text: str) -> None:
    """A sink for what nobody wants."""


def read_whole(text: str) -> TextReader:
    """A reader of text that is already whole."""
    reader = TextReader()
    reader.push(text)
    reader.close()
    return reader


def result_of(parsing: Parsing[T]) -> T:
    """The result of a parser whose reader is closed, so that it never waits."""
    try:
        next(parsing)
    except StopIteration as stop:
        value: T = stop.value
        return value
    raise RuntimeError("the parser waits for text, but its reader is not closed")
