"""The incremental parser that the server feeds."""

from octavo.server.tools.events import AnswerEvent
from octavo.server.tools.reader import Parsing
from octavo.server.tools.scan import Scan


class ToolParser:
    """Content and calls out of one answer's text.

    For any cutting of a text into pieces the events concatenate to the same content and calls. Text that may still be
    part of a call or of its layout is held back, any other text is not.
    """

    def __init__(self, scan: Scan, parsing: Parsing[None]) -> None:
        """
        Args:
            scan: what the parser reads from and reports to.
            parsing: a family's parser of the whole answer, not yet begun.
        """
        self._scan = scan
        self._parsing = parsing
        next(self._parsing)

    def feed(self, text: str) -> list[AnswerEvent]:
        """Takes more text; returns what it made certain."""
        self.push(text)
        return self._scan.events.drain()

    def finish(self) -> list[AnswerEvent]:
        """The answer is over, by itself or cut off. What was held back is content; a call whose arguments are not whole
        ends as incomplete."""
        self.close()
        return self._scan.events.drain()

    @property
    def num_kept(self) -> int:
        """Characters that have been fed and may be looked at again."""
        return self._scan.reader.num_kept

    def push(self, text: str) -> None:
        """Like `feed`, for an owner that drains the events itself."""
        if text:
            self._scan.reader.push(text)
            next(self._parsing)

    def close(self) -> None:
        """Like `finish`, for an owner that drains the events itself."""
        self._scan.reader.close()
        next(self._parsing, None)
        self._scan.events.finish()
