"""Control messages between client and engine core, beside the requests themselves."""

from typing import Any

import msgspec

from octavo.request.orders import Order, PauseMode
from octavo.request.step_record import StepRecord
from octavo.request.tally import Tally


class ControlRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An order to the engine core; each gets exactly one ControlReply with the same call id."""

    call_id: int
    order: Order


class Refusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why something is not done, as it crosses from the core to its client."""

    message: str
    status: int
    """HTTP status that fits: 400, 409 of a profile, 429, or 503 while the engine drains."""
    field: str = ""
    """Of a 400: the request field, and its value for people."""
    value: str = ""
    retry_after_s: float = 1.0
    """Of a 429."""
    code: str = ""
    """Which 429: `pin_budget`, else the queue is full."""


class ControlReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to one ControlRequest."""

    call_id: int
    result: Any = None
    refusal: Refusal | None = None


class TierFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How full a tier behind the device is."""

    tier: str
    num_blocks: int
    """Blocks that lie there or are on their way."""
    used_bytes: int
    capacity_bytes: int


class DraftFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How good guesses have been since start; their totals are among the counters."""

    mean_acceptance_length: float
    """Tokens that a step brings a request that has drafts in it."""
    draft_tokens_by_position: list[int]
    """Draft tokens that ran: entry i, those behind i others of their draft."""
    accepted_by_position: list[int]
    """Of these, tokens that were right. As long as the other."""


class ExpertFigures(msgspec.Struct, frozen=True, kw_only=True):
    """How the experts of one layer have been used since start, by tokens that ran, whatever came of them."""

    layer: int
    num_experts: int
    num_meetings: int
    """Of a token and an expert: each token meets as many as the model says."""
    most_meetings: int
    """Those of the busiest expert."""

    @property
    def imbalance(self) -> float | None:
        """The busiest expert's share over the mean: 1 where all are used alike; None before any token."""
        return self.most_meetings * self.num_experts / self.num_meetings if self.num_meetings else None


class EngineLoad(msgspec.Struct, frozen=True, kw_only=True):
    """How busy the core is; read by metrics, router and planner."""

    num_waiting: int
    num_running: int
    num_free_blocks: int
    num_blocks: int
    num_cached_blocks: int
    """Blocks findable in the prefix cache, held or evictable."""
    num_pinned_blocks: int = 0
    """Blocks that sessions hold, whoever else does."""
    num_sessions: int = 0
    counters: dict[str, float]
    """Monotone totals since start, e.g. prompt_tokens, generation_tokens, cached_tokens, preemptions, steps."""
    num_waiting_tokens: int = 0
    """Known tokens of the waiting requests, cached or not."""
    num_waiting_cached_tokens: int | None = None
    """Of these, tokens found in the prefix cache. Only policies that go by it know: else None."""
    num_running_tokens: int = 0
    """Known tokens of the running requests, prompt and output."""
    num_tokens_to_run: int = 0
    """Tokens of running requests that no planned step runs: the rests of prompts, and one for each that decodes."""
    decode_step_s: float | None = None
    """Seconds that a step of one token per request takes, as a moving average; None: there was none yet."""
    prefill_tokens_per_s: float | None = None
    """Prompt tokens per second of steps that are mostly prompts, as a moving average; None: there was none yet."""
    drafts: DraftFigures | None = None
    """None: there were none."""
    published_s: float = 0.0
    """When this was so, on the core's monotonic clock, which all processes of a machine share."""
    num_waiting_for_kv: int = 0
    """Of the waiting ones, those whose blocks are being loaded."""
    num_waiting_for_grammar: int = 0
    """Of the waiting ones, those whose grammar is being compiled."""
    tiers: list[TierFigures] = []
    """The fastest first."""
    paused: PauseMode | None = None
    """None: it takes requests and runs them."""
    num_to_finish: int = 0
    """While paused: requests that still run to their end."""
    tallies: dict[str, Tally] = {}
    """How often steps have been of which size since start: `iteration_tokens`, `step_duration_seconds`."""
    step: StepRecord | None = None
    """The last one that has landed; None: there was none."""
    experts: list[ExpertFigures] = []
    """Of each layer that has experts."""
