"""What one step does (`StepPlan`) and what came of it (`StepResult`). Metadata, never tensors.

A request's tokens, with c = computed before this step and s = scheduled in it:

    |<---------- known tokens n = prompt + outputs ---------->|
    |<------ c: in the KV cache ----->|<-- s: run now -->|    |
    0                                 c                c + s  n

A request yields a token in this step iff c + s == n: the row of its last known token is sampled. One with pooling
parameters yields its vector then, in place of a token.

With d drafts planned among the s, tokens are tried that nobody knows yet, and 1 to 1 + d come of it:

    |<---------- known tokens n ---------->|<-- d -->|
    |<------------ c ------------->|<------ s ------>|        c + s == n + d

The runner fills them in, fewer if it has no more guesses. A plan made before it is known what came of drafts in flight
counts them all in n and c; the runner knows better, and goes on behind those that were right.
"""

import msgspec

from octavo.request.outputs import LogprobRow
from octavo.request.params import SamplingParams
from octavo.request.pooling import PoolingParams
from octavo.request.profile import StepProfile


class NewRequestData(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request the runner does not hold: admitted for the first time, or resumed after preemption."""

    request_id: str
    token_ids: list[int]
    """All known tokens: prompt, then (after preemption) outputs."""
    num_prompt_tokens: int
    params: SamplingParams
    eos_token_ids: tuple[int, ...]
    block_ids: tuple[tuple[int, ...], ...]
    """[group] -> block ids from position 0, prefix hits included, new blocks of this step included; 0 for entries out
    of reach."""
    pooling: PoolingParams | None = None
    """Set: a vector is wanted of the prompt, and no token."""
    tenant: str = ""
    """Whose it is: nothing is guessed for one tenant from another's text."""
    cache_salt: str | None = None
    """Nor for one salt from another's."""


class BlockCopy(msgspec.Struct, frozen=True, array_like=True):
    """Copy the first `num_tokens` slots of a block, in all layers of a group, before the step's writes."""

    group: int
    source: int
    target: int
    num_tokens: int


class BlockSwap(msgspec.Struct, frozen=True, array_like=True):
    """Entry `position` of a held request's block table in `group` becomes `block_id`; the old block is free.

    Two requests computed the same tokens apart: both blocks hold the same bits, and one is enough. Or the block has
    got out of reach (below a sliding window): the entry becomes 0, the null block, and nothing reads it any more.
    """

    request_id: str
    group: int
    position: int
    block_id: int


class StepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One step, columnar: entry i of each per-request column belongs to `request_ids[i]`.

    The runner applies it in this order: forget `finished_request_ids` and `preempted_request_ids`, do `block_swaps`,
    take in `new_requests`, append `new_block_ids`, do `block_copies`, run. A plan holds at least one request.
    """

    step: int
    """Sequence number, from 0."""
    request_ids: tuple[str, ...]
    num_scheduled_tokens: tuple[int, ...]
    """>= 1 each."""
    num_computed_tokens: tuple[int, ...]
    """Before this step."""
    new_block_ids: tuple[tuple[tuple[int, ...], ...], ...]
    """[request][group] -> ids that stand in the request's block table from the first entry on that its computed tokens
    leave unused; empty for requests in `new_requests`. Entries behind these were for drafts that came to nothing."""
    new_requests: tuple[NewRequestData, ...] = ()
    num_draft_tokens: tuple[int, ...] = ()
    """Most drafts among the scheduled tokens; empty tuple: none in the whole step. They have blocks."""
    least_draft_chance: float = 0.0
    """Drafts that are less likely to be right, with all before them, cost more than they bring."""
    block_copies: tuple[BlockCopy, ...] = ()
    block_swaps: tuple[BlockSwap, ...] = ()
    """For requests of this plan that the runner already holds."""
    preempted_request_ids: tuple[str, ...] = ()
    finished_request_ids: tuple[str, ...] = ()
    """Finished or aborted since the previous plan; each id appears exactly once."""
    profiled: bool = False
    """Whoever runs it says when it did what (`StepResult.profile`). No token depends on it."""

    @property
    def num_tokens(self) -> int:
        return sum(self.num_scheduled_tokens)

    @property
    def num_known_tokens(self) -> int:
        """Of these, tokens that are no drafts."""
        return sum(self.num_scheduled_tokens) - sum(self.num_draft_tokens)


class StepTimings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds spent in the parts of a step on the executing side."""

    prepare_s: float = 0.0
    execute_s: float = 0.0
    sample_s: float = 0.0
    draft_s: float = 0.0
    """Guessing drafts, and telling whoever guesses what came of the step."""

    @property
    def total_s(self) -> float:
        return self.prepare_s + self.execute_s + self.sample_s + self.draft_s


class StepResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a step produced, columnar over the plan's `request_ids`."""

    step: int
    token_ids: tuple[tuple[int, ...], ...]
    """Sampled (and accepted) tokens per request; empty where the request's prompt is not finished, it failed, or it
    is pooled."""
    num_draft_tokens: tuple[int, ...] = ()
    """Drafts that ran per request, at most as many as planned; empty tuple: none in the whole step."""
    logprobs: tuple[tuple[LogprobRow, ...] | None, ...] = ()
    """Per request, one row per sampled token where asked for; empty tuple: nobody asked."""
    prompt_logprobs: dict[str, list[LogprobRow]] = {}
    """request id -> rows for the prompt positions predicted in this step, in order: row of position p predicts
    token p + 1."""
    completed_request_ids: tuple[str, ...] = ()
    """Requests whose answers are whole with the tokens of this step, where nothing could follow but an end token that
    they may not have: they end well."""
    vectors: dict[str, bytes] = {}
    """request id -> the vector of a pooled request whose prompt is finished: little-endian float32."""
    errors: dict[str, str] = {}
    """request id -> what failed for this request alone; its tokens of this step do not count."""
    unfit_request_ids: tuple[str, ...] = ()
    """Of these, requests that ask for what no token fulfils: a shape that leads nowhere."""
    timings: StepTimings = StepTimings()
    profile: StepProfile | None = None
    """Of a profiled plan, from an executor that keeps times."""
