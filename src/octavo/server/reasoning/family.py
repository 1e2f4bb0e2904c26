"""What the registry holds: a way to mark reasoning."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from octavo.server.reasoning.part import ReasoningPart
from octavo.server.tools.reader import Parsing, Sink, TextReader


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """Texts around reasoning, for an engine that follows an answer by its tokens."""

    begins: tuple[str, ...]
    """Any of these begins it."""
    ends: tuple[str, ...]
    """Any of these ends it, and behind it the answer stands."""
    ends_before_calls: tuple[str, ...] = ()
    """The same where the answer is to be calls, if that is not `ends`."""
    reopens: bool = False
    """Reasoning may begin again after its end."""


@runtime_checkable
class ReasoningFamily(Protocol):
    """One way to mark reasoning. Stateless."""

    @property
    def name(self) -> str:
        """As given to `--reasoning-parser`."""
        ...

    @property
    def forced_end(self) -> str:
        """The text that ends reasoning and begins the answer, for a budget that is used up; empty if there is none."""
        ...

    @property
    def markers(self) -> ReasoningMarkers | None:
        """What stands around it; None where it is not marked."""
        ...

    def recognises(self, template: str) -> bool:
        """Whether a model with this chat template marks its reasoning so."""
        ...

    def opened_by(self, prompt: str) -> str:
        """The marker with which a rendered prompt ends, so that the answer begins inside reasoning; empty if there is
        none. The prompt's last line will do."""
        ...

    def separate(self, reader: TextReader, reasoning: ReasoningPart, content: Sink, opened: str) -> Parsing[None]:
        """Reads a whole answer and passes its text on. Must not raise.

        Args:
            reader: the answer's text.
            reasoning: takes what the model thinks, and where that stands.
            content: takes the rest; calls stand in it as the model wrote them.
            opened: what `opened_by` said of the prompt.
        """
        ...
