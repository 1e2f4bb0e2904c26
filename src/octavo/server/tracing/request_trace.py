"""What the span of one request will tell, noted while the request is answered. Knows nothing of OpenTelemetry."""

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from octavo.request.ledger import ChoiceLedger, RequestLedger
from octavo.request.outputs import FinishReason, RequestStats
from octavo.request.params import SamplingParams

Place = tuple[int, int]
"""Which sequence of a request: prompt, choice."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What went to the engine."""

    request_id: str
    """As the answer names it."""
    prompt_lens: Sequence[int]
    """Tokens of each prompt."""
    params: SamplingParams | None = None
    """None: vectors are made of the prompts."""

    @property
    def num_choices(self) -> int:
        """Of each prompt."""
        return 1 if self.params is None else self.params.n

    @property
    def places(self) -> list[Place]:
        """Of all sequences, prompt by prompt."""
        return [(prompt, choice) for prompt in range(len(self.prompt_lens)) for choice in range(self.num_choices)]

    def core_id(self, place: Place) -> str:
        """What the engine core calls a sequence: the request's id, then the numbers of prompt and choice, each if there
        are several."""
        prompt, choice = place
        of_prompt = f"{self.request_id}-{prompt}" if len(self.prompt_lens) > 1 else self.request_id
        return f"{of_prompt}-{choice}" if self.num_choices > 1 else of_prompt


@dataclass(frozen=True)
class TracedSequence:
    """One sequence of a request, as far as anything is known of it."""

    reason: FinishReason
    stats: RequestStats | None
    """None: the engine core has not told."""


class RequestTrace:
    """Filled in wherever something becomes known, read once at the end."""

    def __init__(self, tenant: str = "") -> None:
        self.tenant = tenant
        self.status: int | None = None
        """Of the HTTP answer; None: the client left before there was one."""
        self.streams = False
        """The answer is a stream of events."""
        self.asked: Asked | None = None
        """None: it did not come so far."""
        self.error_type: str | None = None
        """What went wrong, as a word for programs; None: nothing."""
        self.problem: str | None = None
        """The same for people, where it is the server that is to blame."""
        self._rest = FinishReason.ABORT
        self._ended: dict[Place, TracedSequence] = {}
        self._told_by_core: dict[str, ChoiceLedger] = {}
        self._taken = True

    def asks(self, asked: Asked) -> None:
        """The request goes to the engine."""
        self.asked = asked

    def ended(self, place: Place, reason: FinishReason, stats: RequestStats | None) -> None:
        """A sequence has come to an end of its own."""
        self._ended[place] = TracedSequence(reason, stats)

    def others_ended(self, reason: FinishReason) -> None:
        """So have those that have not said so."""
        self._rest = reason

    def refused(self) -> None:
        """The engine did not take it."""
        self._taken = False

    def failed(self, error_type: str, status: int, problem: str) -> None:
        """It was answered by an error. The client is to blame for those with a status below 500."""
        self.error_type = error_type
        self.problem = problem if status >= 500 else None

    @property
    def lacks(self) -> str | None:
        """Id of the request if the engine core knows more of it than has come with its outputs: of sequences that were
        aborted, or that a stop string ended here."""
        if self.asked is None or not self._taken:
            return None
        known = sum(one.stats is not None and one.stats.finished_s is not None for one in self._ended.values())
        return self.asked.request_id if known < len(self.asked.places) else None

    def complete(self, ledger: RequestLedger) -> None:
        """Takes over what the engine core knows."""
        self._told_by_core = {choice.request_id: choice for choice in ledger.choices}

    def sequences(self) -> list[TracedSequence]:
        """All of a request that the engine has taken. How one ended is what its client was told: where a stop string
        ended it the core may have gone on to another end before it heard of that."""
        asked = self.asked
        if asked is None or not self._taken:
            return []
        return [self._sequence(self._ended.get(place), asked.core_id(place)) for place in asked.places]

    def _sequence(self, ended: TracedSequence | None, core_id: str) -> TracedSequence:
        told = self._told_by_core.get(core_id)
        if told is None:
            return ended or TracedSequence(self._rest, None)
        return TracedSequence(told.finish_reason or self._rest if ended is None else ended.reason, told.stats)


TRACE: ContextVar[RequestTrace | None] = ContextVar("trace", default=None)
"""Of the HTTP request being answered; None: it is not traced."""


def current_trace() -> RequestTrace:
    """The trace of the request being answered, or one that nobody reads."""
    return TRACE.get() or RequestTrace()
