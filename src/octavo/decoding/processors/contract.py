"""What a logits processor is: a pure function from a request's tokens and arguments to changes of its logits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from octavo.execution.protocols import Float32


@dataclass(frozen=True)
class ProcessedRequest:
    """One row's request, as it is when its next token is drawn. To be read, not changed."""

    args: Mapping[str, Any]
    """What the request says to this processor: JSON values."""
    prompt_token_ids: Sequence[int]
    output_token_ids: Sequence[int] = field(default_factory=list)
    """So far; the list grows with the answer, so a processor that keeps it sees more than it was asked about."""


@runtime_checkable
class LogitsProcessor(Protocol):
    """Edits logits before anything else is applied to them.

    What becomes of a row may follow from its own `ProcessedRequest` and logits only: not from the other rows, not from
    earlier calls, the clock or chance. Then a request has the same tokens in any company, when its steps are cut in
    another way, and when it goes on after preemption, where nothing is replayed but its tokens.
    """

    def check(self, args: Mapping[str, Any]) -> None:
        """Looks at the arguments of a request before it is taken in, in the process of the client or server.

        Raises:
            ValueError: they cannot be honoured; the client is told why, in these words.
        """
        ...

    def process(self, requests: Sequence[ProcessedRequest], logits: Float32) -> None:
        """Edits rows in place: `logits` `[requests, valid_vocab_size]`, a copy that nobody else reads. -inf rules a
        token out. If it raises, each request is tried alone, and those where it raises again end with an error; so
        does one whose row holds a NaN afterwards."""
        ...


ProcessorFactory = Callable[[int], LogitsProcessor]
"""What an entry point names: given the number of valid token ids, makes the processor. Called once per process."""
