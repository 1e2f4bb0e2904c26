"""The reasoning in an answer: what it says, and where it stands."""

from octavo.server.tools.reader import Sink


class ReasoningPart:
    """Takes the text of reasoning, and the places where that begins and ends, in characters of the whole answer:

    <think>Hm.</think>Yes.
    |                 |
    begin             end
    """

    def __init__(self, sink: Sink) -> None:
        self.add = sink
        """Takes more of its text."""
        self._spans: list[tuple[int, int]] = []
        self._begin: int | None = None

    def begin(self, at: int) -> None:
        """It begins at this character, markers included."""
        self._begin = at

    def end(self, at: int) -> None:
        """The character there is the first behind it."""
        if self._begin is not None:
            self._spans.append((self._begin, at))
            self._begin = None

    def holds(self, at: int) -> bool:
        """Whether a character of what has been read belongs to it."""
        is_open = self._begin is not None and at >= self._begin
        return is_open or any(begin <= at < end for begin, end in self._spans)
