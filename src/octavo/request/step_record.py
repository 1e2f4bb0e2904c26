"""What one step of the engine was made of and how long it took: the unit of telemetry.

The fields outside `octavo` are NVIDIA Dynamo's forward-pass metrics, version 1, name by name, so that whoever reads
those reads these; what they mean here is said in docs/telemetry.md. Times are seconds, lengths are tokens, variances
those of a whole population.
"""

import msgspec

VERSION = 1
"""Of forward-pass metrics."""
DETAIL_VERSION = 1
"""Of `StepDetail`: grows when a field changes its meaning or goes; fields that come leave it."""


class ScheduledFigures(msgspec.Struct, frozen=True, gc=False):
    """The requests of a step. Those that run more than one known token, or have not run all of their prompt, prefill;
    the others decode."""

    num_prefill_requests: int = 0
    sum_prefill_tokens: int = 0
    """Tokens that they run in this step."""
    var_prefill_length: float = 0.0
    """Of all tokens that these are to run from, however few of them run in this step."""
    sum_prefill_kv_tokens: int = 0
    """Their tokens computed before: found in the cache, or run in steps before."""
    num_decode_requests: int = 0
    sum_decode_kv_tokens: int = 0
    """Their tokens, the one that runs included, drafts not."""
    var_decode_kv_tokens: float = 0.0


class QueuedFigures(msgspec.Struct, frozen=True, gc=False):
    """The requests that wait when a step has been planned. Those that never ran are to prefill; those that were
    preempted decoded."""

    num_prefill_requests: int = 0
    sum_prefill_tokens: int = 0
    var_prefill_length: float = 0.0
    num_decode_requests: int = 0
    sum_decode_kv_tokens: int = 0
    var_decode_kv_tokens: float = 0.0


class StepDetail(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What forward-pass metrics do not say."""

    version: int = DETAIL_VERSION
    step: int = -1
    """Number of the step since the engine's start, without a gap; -1: a sign of life of an engine that rests."""
    ended_s: float = 0.0
    """Unix time of the step's end."""
    schedule_s: float = 0.0
    """Planning it."""
    prepare_s: float = 0.0
    """Turning the plan into arrays."""
    execute_s: float = 0.0
    """The model's program."""
    sample_s: float = 0.0
    draft_s: float = 0.0
    """Guessing what comes next."""
    update_s: float = 0.0
    """Taking the result in."""
    publish_s: float = 0.0
    """Handing on what has changed in the cache."""
    between_s: float = 0.0
    """From the end of the step before to the beginning of this one, for messages of and to clients; 0 if the engine had
    nothing to do in between, or planned this step beside the one before."""
    prefill_attention_pairs: int = 0
    """Pairs of a token and one before it (or itself) over the tokens of requests that prefill: s * c + s * (s + 1) / 2
    for s tokens behind c; below a sliding window fewer are computed."""
    num_sampled_requests: int = 0
    """Of the requests, those that got at least one token, or a vector."""
    num_grammar_requests: int = 0
    """Whose answers are of a given shape."""
    num_draft_tokens: int = 0
    """Drafts that ran, beside the tokens above."""
    num_accepted_draft_tokens: int = 0
    num_new_requests: int = 0
    """Admitted with this step; those that come back from preemption, too."""
    num_preempted_requests: int = 0
    """Preempted while it was planned."""
    num_running_requests: int = 0
    """In the running batch, whether they have a part of this step or sit it out."""
    num_free_blocks: int = 0
    """Of KV, when it has been planned."""
    num_copied_blocks: int = 0
    """Copied before it, for what begins alike and goes on differently within a block."""


class StepRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One step, or (with a wall time of 0, and no requests scheduled) a sign of life."""

    version: int = VERSION
    worker_id: str = ""
    """Of this start of the engine."""
    dp_rank: int = 0
    counter_id: int = 0
    """Number of the record since then, without a gap, signs of life included."""
    wall_time: float = 0.0
    """Seconds from the beginning of planning, or from the end of the step before where that is later, to the end."""
    scheduled_requests: ScheduledFigures = ScheduledFigures()
    queued_requests: QueuedFigures = QueuedFigures()
    octavo: StepDetail = StepDetail()
