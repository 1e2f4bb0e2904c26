"""Reasoning between two markers at the beginning of the answer."""

import re
from dataclasses import dataclass

from octavo.server.reasoning.family import ReasoningMarkers
from octavo.server.reasoning.part import ReasoningPart
from octavo.server.reasoning.trimmed import Trimmed
from octavo.server.tools.answer_events import WHITE_SPACE
from octavo.server.tools.reader import MarkerSet, Parsing, Sink, TextReader

_NOTHING = MarkerSet(())
_SPACE = re.compile(r"[ \t\r\n]+")


@dataclass(frozen=True, slots=True)
class TagPair:
    """Markers that belong together."""

    begins: tuple[str, ...]
    ends: tuple[str, ...]


@dataclass(frozen=True)
class TaggedReasoning:
    """A family of this kind.

    Reasoning begins where the answer does (or in the prompt) and ends at the end marker; if that never comes, all of
    the answer is reasoning. White space around both parts is layout and dropped. A marker anywhere else is text.
    """

    name: str
    pairs: tuple[TagPair, ...]
    marks: tuple[str, ...]
    """Any of these in a chat template tells the family."""
    forced_end: str
    wrapper: tuple[str, str] | None = None
    """Markers around the content behind the reasoning."""

    @property
    def markers(self) -> ReasoningMarkers | None:
        """See ReasoningFamily."""
        if not self.pairs:
            return None
        return ReasoningMarkers(
            begins=tuple(begin for pair in self.pairs for begin in pair.begins),
            ends=tuple(end for pair in self.pairs for end in pair.ends),
        )

    def recognises(self, template: str) -> bool:
        """See ReasoningFamily."""
        return any(mark in template for mark in self.marks)

    def opened_by(self, prompt: str) -> str:
        """See ReasoningFamily."""
        end = prompt.rstrip(WHITE_SPACE)
        return next((begin for pair in self.pairs for begin in pair.begins if end.endswith(begin)), "")

    def separate(self, reader: TextReader, reasoning: ReasoningPart, content: Sink, opened: str) -> Parsing[None]:
        """See ReasoningFamily."""
        if opened:
            reasoning.begin(0)
        pieces: list[str] = []
        yield from reader.run(_SPACE, pieces.append)
        begins = [begin for pair in self.pairs for begin in pair.begins]
        written = (yield from reader.accept(*begins)) if begins else ""
        begin = written or opened
        if not begin:
            content("".join(pieces))
            yield from reader.until(_NOTHING, content)
            return
        ends = next(pair.ends for pair in self.pairs if begin in pair.begins)
        if not opened:
            reasoning.begin(reader.position - len(written))
        if (yield from reader.until(MarkerSet(ends), Trimmed(reasoning.add).add)):
            reasoning.end(reader.position)
            yield from self._answer(reader, content)

    def _answer(self, reader: TextReader, content: Sink) -> Parsing[None]:
        """The content behind the reasoning, out of its wrapper if there is one."""
        yield from reader.space()
        if self.wrapper is not None and (yield from reader.accept(self.wrapper[0])):
            yield from reader.space()
            yield from reader.until(MarkerSet(self.wrapper[1:]), Trimmed(content).add)
        yield from reader.until(_NOTHING, content)
