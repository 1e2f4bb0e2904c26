"""Text without the white space around it, while it arrives."""

from octavo.server.tools.answer_events import WHITE_SPACE
from octavo.server.tools.reader import Sink


class Trimmed:
    """Passes text on; holds white space back until text follows it, and drops it at both ends."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._space: list[str] = []
        self._has_begun = False

    def add(self, text: str) -> None:
        """More of the text."""
        if not self._has_begun:
            text = text.lstrip(WHITE_SPACE)
            self._has_begun = bool(text)
        visible = text.rstrip(WHITE_SPACE)
        if visible:
            self._sink("".join((*self._space, visible)))
            self._space.clear()
        if len(visible) < len(text):
            self._space.append(text[len(visible) :])
