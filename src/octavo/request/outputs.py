"""What comes back: tokens with their logprobs, a finish reason, and the request's ledger."""

from enum import StrEnum

import msgspec

from octavo.request.account import Account


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    REPETITION = "repetition"


class LogprobRow(msgspec.Struct, frozen=True, array_like=True):
    """Logprobs of one position: the chosen token first, then the most probable ones, best first (natural log).

    The chosen token stands at index 0 even when it is also among the most probable. Values are exact float32.
    """

    token_ids: list[int]
    logprobs: list[float]
    rank: int
    """1 + number of tokens more probable than the chosen one."""


class RequestStats(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The request's ledger: what happened to it, in tokens, blocks, steps and seconds (engine core clock)."""

    received_s: float | None = None
    """When the client had it; None: it does not say."""
    sent_s: float | None = None
    """When the client sent it to the core, where it was taken in at `arrival_s`; None: it does not say."""
    arrival_s: float = 0.0
    first_scheduled_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    delivered_s: float | None = None
    """When the client had passed on all of the answer; None: it has not, or did not say so."""
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    """Prompt tokens found in the prefix cache at first admission (never computed for this request)."""
    num_loaded_tokens: dict[str, int] = {}
    """Of these, tokens that were first loaded from a tier behind the device: tier -> tokens."""
    num_computed_tokens: int = 0
    """Tokens run through the model for this request, recomputation included."""
    num_recomputed_tokens: int = 0
    """Of these, tokens that had been computed before and were lost to preemption."""
    num_resumed_cached_tokens: int = 0
    """Found in the prefix cache when it came back from preemptions."""
    num_spared_tokens: int = 0
    """Of these, tokens that it had never got to itself: others had computed them meanwhile."""
    num_drafts: int = 0
    """Steps in which drafts of this request were verified."""
    num_draft_tokens: int = 0
    """Tokens of these drafts."""
    num_accepted_draft_tokens: int = 0
    """Of these, tokens that were right."""
    num_accepted_by_position: list[int] = []
    """Entry i: of these, those that stood behind i others of their draft. As long as the longest draft."""
    num_saved_steps: int = 0
    """Of the accepted ones, those that are part of the answer: it took so many steps less."""
    num_overrun_tokens: int = 0
    """Of the computed ones, tokens behind what was needed, for nobody foresaw the last one: in a step that was planned
    by then, or as right drafts of the same step."""
    num_preemptions: int = 0
    preempted_s: list[float] = []
    """When it was preempted: the first times, at most 32."""
    num_steps: int = 0
    """Steps in which at least one token of this request ran."""
    max_blocks: int = 0
    """Most KV blocks held at one time."""
    waited_for_grammar_s: float = 0.0
    """Until the grammar of the answer was compiled; 0 for answers without."""
    num_pinned_tokens: int | None = None
    """With the last output of a request with a session: tokens that the session holds."""
    pin_problem: str = ""
    """Why these are not all its full blocks, for the user."""
    account: Account | None = None
    """Where its time went and what ran for it; with the last output. None: such accounts are not kept."""

    @property
    def e2e_s(self) -> float:
        """From when it was received to when its answer had left, as far as that is known; its phases add up to it."""
        return sum(self.phases_s.values())

    @property
    def phases_s(self) -> dict[str, float]:
        """Phase -> seconds, in the order in which they come: those of the client's side around those of the core
        (`octavo.request.account.Phase`). `prepare`: until it was sent, rendered and tokenised; `submit`: until the
        core, between two of its steps, took it in; `deliver`: from its end in the core until all of the answer had
        left."""
        sent_s = self.arrival_s if self.sent_s is None else self.sent_s
        begin_s = sent_s if self.received_s is None else self.received_s
        whole = {"prepare": sent_s - begin_s, "submit": self.arrival_s - sent_s}
        if self.account is not None:
            whole |= {str(phase): seconds for phase, seconds in self.account.phases_s.items()}
        if self.finished_s is not None and self.delivered_s is not None:
            whole["deliver"] = self.delivered_s - self.finished_s
        return {phase: seconds for phase, seconds in whole.items() if seconds}

    @property
    def num_fresh_tokens(self) -> int:
        """Of the computed ones, those that it computed for the first time, and kept: no drafts that were wrong."""
        return (
            self.num_computed_tokens
            - self.num_recomputed_tokens
            - (self.num_draft_tokens - self.num_accepted_draft_tokens)
        )

    @property
    def num_wasted_draft_tokens(self) -> int:
        """Rows run in vain: no token of the answer came of them."""
        return self.num_draft_tokens - self.num_saved_steps

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens that a step with drafts brought; None: there was none."""
        return 1 + self.num_accepted_draft_tokens / self.num_drafts if self.num_drafts else None


class RequestOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One increment of one request, from engine core to client."""

    request_id: str
    new_token_ids: list[int] = []
    new_logprobs: list[LogprobRow] | None = None
    """One row per new token where logprobs were asked for."""
    prompt_logprobs: list[LogprobRow | None] | None = None
    """Sent once, with the first output; entry 0 is None (nothing predicts the first token)."""
    vector: bytes | None = None
    """Of a pooled request, with its only output: little-endian float32."""
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    """The one of the request's `stop_token_ids` that ended it; None if an end-of-sequence id or anything else did."""
    ends_with_text: bool = False
    """With finish_reason stop: the last token is part of the answer, whose shape lets nothing follow, and no token that
    ended it."""
    error: str | None = None
    """Set with finish_reason error: what went wrong, for the user."""
    error_status: int = 500
    """HTTP status that fits `error`; 400, 429 and 503 mean that the request was refused before it ran, 422 that it asks
    for what no token fulfils."""
    retry_after_s: float = 1.0
    """With a 429: seconds after which a place may be free."""
    error_code: str = ""
    """Which 429 it is: `pin_budget`, else the queue is full."""
    error_field: str = ""
    """The request field that a 400 or 422 is about, and its value for people."""
    error_value: str = ""
    stats: RequestStats | None = None
    """Sent with the first and the last output."""

    @property
    def ledger(self) -> RequestStats | None:
        """The whole ledger, with the last output."""
        return self.stats if self.finish_reason is not None else None
