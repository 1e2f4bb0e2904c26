"""Where the time of a request went, and what ran for it: phases, reasons of waits, chunks, blocks, work."""

from enum import StrEnum

import msgspec


class Phase(StrEnum):
    """What a request is in at each moment from its arrival in the engine core to its end. None overlap, none is left
    out."""

    QUEUE = "queue"
    """It has not run yet."""
    PREFILL = "prefill"
    """From its first step to its first token (the end, for one whose answer is a vector)."""
    DECODE = "decode"
    """From a token to its last one."""
    PREEMPTED = "preempted"
    """It had to give up its blocks and waits to come back."""
    RECOMPUTE = "recompute"
    """Back, until its next token: what was lost runs again."""
    STALLED = "stalled"
    """It holds its blocks, but steps are planned without it."""


WAITING_PHASES = (Phase.QUEUE, Phase.PREEMPTED, Phase.STALLED)
"""Those in which nothing runs for the request; each is divided by `WaitReason`."""


class WaitReason(StrEnum):
    """Why a step was planned without a request. It holds from that planning to the next."""

    STEP = "step"
    """It came, or came back, after a step had been planned: the next planning is the first to look at it."""
    ORDER = "order"
    """Others come before it, and they are not done with: none may be overtaken any more."""
    SLOTS = "slots"
    """As many requests run as may (`max_num_seqs`)."""
    KEY_LIMIT = "key_limit"
    """As many of its API key run as may (`max_running_per_key`)."""
    BUDGET = "budget"
    """Others have all tokens of the step (`max_num_batched_tokens`)."""
    BLOCKS = "blocks"
    """The KV blocks that it needs are not free."""
    FORECAST = "forecast"
    """They are, but would not last for it and those that run (`admission_conservativeness`)."""
    GRAMMAR = "grammar"
    """The grammar of its answer is being compiled."""
    KV = "kv"
    """Its prefix is being loaded from a tier behind the device."""
    PAUSED = "paused"
    """The engine was paused."""


class ChunkRun(msgspec.Struct, frozen=True, array_like=True):
    """Steps in a row that ran equal numbers of a request's tokens."""

    phase: Phase
    """prefill, recompute or decode."""
    start: int
    """Its tokens computed before the first of them."""
    size: int
    """Tokens that each ran, without drafts; 0: they differ (the last entry of a list that is full)."""
    num_steps: int
    num_tokens: int
    """That they ran together, without drafts."""
    first_step: int
    last_step: int
    """Numbers of steps of the engine. Those in between that it did not take part in are not counted."""


class WorkDone(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the steps of one phase have computed for a request, and how long they took."""

    num_steps: int = 0
    num_tokens: int = 0
    """Tokens run for it, drafts among them: rows of the batch."""
    num_sampled: int = 0
    """Of these, rows whose logits were made."""
    share: float = 0.0
    """Sum over the steps of its part of each step's rows: a step that it had to itself counts 1."""
    steps_s: float = 0.0
    """How long its steps took on the executing side."""
    share_s: float = 0.0
    """Its part of that, by rows: over all requests these add up to the time of all steps."""
    num_pairs: list[int] = []
    """For each reach of the model's layers (`Scheduler.reaches`): (query, key) pairs of attention."""
    num_read: list[int] = []
    """The same: tokens whose K and V were read."""
    flops: int | None = None
    """Of its rows, as the program is priced. This and what follows is None where nobody prices the program."""
    weight_bytes: float | None = None
    """Its part of the weights that its steps read, by rows."""
    kv_bytes: int | None = None
    """K and V read and written for it."""
    bound_s: float | None = None
    """Least time of these steps on this machine if each had run for this request alone. None: the machine's rates are
    not known."""
    bound_by: str = ""
    """What most of that is bound by: memory or arithmetic."""


class Account(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The account of one sequence. Seconds of the engine core's clock."""

    phases_s: dict[Phase, float] = {}
    """They add up to the time from arrival to end (or now)."""
    waits_s: dict[Phase, dict[WaitReason, float]] = {}
    """Of the waiting phases, by reason; they add up to the phase."""
    chunks: list[ChunkRun] = []
    """The steps in their order, at most `MAX_CHUNK_RUNS` entries."""
    work: dict[Phase, WorkDone] = {}
    """Of prefill, recompute and decode. A step belongs to what it computes, not to the moment at which it runs."""
    block_seconds: float = 0.0
    """KV blocks held, times how long."""
    blocks: list[tuple[float, int]] = []
    """(time, blocks held from then on): changes, or every 2nd, 4th ... of them, so that there are at most
    `MAX_BLOCK_SAMPLES`. Each is known from the planning of a step on."""


MAX_CHUNK_RUNS = 32
MAX_BLOCK_SAMPLES = 32
