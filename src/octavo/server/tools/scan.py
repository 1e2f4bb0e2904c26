"""One answer while it is parsed: what is read, what has been found, and which tools there are."""

from collections.abc import Callable, Collection, Sequence

from octavo.server.tools.answer_events import AnswerEvents
from octavo.server.tools.reader import MAX_WORD, MalformedCallError, MarkerSet, Parsing, TextReader
from octavo.server.tools.tool import Tool

BodyParser = Callable[["Scan", str], Parsing[None]]
"""Parses the calls behind a marker, with what closes them."""


class Names:
    """Which names make a call."""

    def __init__(self, names: Collection[str] | None) -> None:
        """
        Args:
            names: all there are; None: any name will do.
        """
        self._names = None if names is None else frozenset(names)
        self._beginnings = frozenset(name[:size] for name in names or () for size in range(len(name) + 1))

    def accepts(self, name: str) -> bool:
        """Whether this is one."""
        return bool(name) if self._names is None else name in self._names

    def may_begin(self, text: str) -> bool:
        """Whether some name begins so."""
        return len(text) <= MAX_WORD if self._names is None else text in self._beginnings


class Scan:
    """Shared by the parsers of one answer.

    Text is at any time one of three things: passed on as an event; recorded, in an attempt to read a call whose outcome
    is open; or layout that a finished construct consumed (`settle`). So nothing is lost when an attempt fails.
    """

    def __init__(self, events: AnswerEvents, tools: Sequence[Tool]) -> None:
        self.reader = TextReader()
        self.events = events
        self.tools = {tool.name: tool for tool in tools}
        self.any_name = Names(None)
        """Behind a marker: models invent functions, and the client must learn of it."""
        self.known_names = Names(self.tools) if tools else self.any_name
        """Where only the name tells a call from other text."""

    def answer(
        self, markers: MarkerSet, body: BodyParser, bare: Callable[["Scan"], Parsing[None]] | None = None
    ) -> Parsing[None]:
        """A whole answer: content, and calls behind markers.

        Args:
            markers: what opens calls.
            body: what stands behind one.
            bare: calls without a marker, which can only stand at the very beginning of the answer.
        """
        if bare is not None:
            yield from self._attempt("", bare(self))
        while marker := (yield from self.reader.until(markers, self.events.content)):
            yield from self._attempt(marker, body(self, marker))

    def open_call(self, name: str) -> None:
        """What was read is a call: its arguments come next."""
        self.reader.recorded()
        self.events.start(name)

    def close_call(self) -> None:
        """The arguments are whole."""
        self.events.end(complete=True)
        self.reader.record()

    def settle(self) -> None:
        """What was read since the last call belongs to it: a separator, a closing marker."""
        self.reader.record()

    def _attempt(self, opening: str, calls: Parsing[None]) -> Parsing[None]:
        """Parses calls; what turns out not to belong to one is content, and reading goes on where it failed."""
        self.reader.record(opening)
        try:
            yield from calls
        except MalformedCallError as error:
            if self.events.call_is_open:
                yield from self._break_off(error.unread)
        self.events.content(self.reader.recorded())

    def _break_off(self, unread: str) -> Parsing[None]:
        """Ends a call that went wrong. Where the answer was cut off its unfinished last word is dropped."""
        self.events.end(complete=False)
        if (yield from self.reader.peek()):
            self.events.content(unread)
