"""What the registry holds: a way to mark reasoning."""

from typing import Protocol, runtime_checkable

from octavo.server.tools.reader import Parsing, Sink, TextReader


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

    def recognises(self, template: str) -> bool:
        """Whether a model with this chat template marks its reasoning so."""
        ...

    def opened_by(self, prompt: str) -> str:
        """The marker with which a rendered prompt ends, so that the answer begins inside reasoning; empty if there is
        none. The prompt's last line will do."""
        ...

    def separate(self, reader: TextReader, reasoning: Sink, content: Sink, opened: str) -> Parsing[None]:
        """Reads a whole answer and passes its text on. Must not raise.

        Args:
            reader: the answer's text.
            reasoning: takes what the model thinks.
            content: takes the rest; calls stand in it as the model wrote them.
            opened: what `opened_by` said of the prompt.
        """
        ...
