"""What callers of the engine see: text and tokens per choice, as deltas while streaming and whole at the end."""

from dataclasses import dataclass, field

import msgspec

from octavo.engine.memory_ledger import MemoryLedger
from octavo.request.ledger import ChoiceLedger, RequestLedger
from octavo.request.outputs import FinishReason, LogprobRow, RequestStats
from octavo.sizes import size_text


@dataclass(frozen=True, kw_only=True)
class KVStreamInfo:
    """Where and how an engine publishes KV events."""

    endpoint: str
    """Where to subscribe; 0.0.0.0 stands for any address of the machine."""
    replay_endpoint: str | None
    topic: str
    form: str
    """`map` or `array`."""
    epoch: str
    """Of this start of the engine; hexadecimal."""

    def describe(self) -> str:
        """Where to follow it."""
        return f"KV events at {self.endpoint}" + (f" and {self.replay_endpoint}" if self.replay_endpoint else "")


@dataclass(frozen=True, kw_only=True)
class StepStreamInfo:
    """Where an engine publishes a record of every step."""

    endpoint: str
    """Where to subscribe; 0.0.0.0 stands for any address of the machine."""
    topic: str
    worker_id: str
    """Of this start of the engine; in every record."""


@dataclass(frozen=True, kw_only=True)
class KVTierInfo:
    """A tier behind the device pool, as it was at start."""

    tier: str
    """`host` or `disk`."""
    capacity_bytes: int
    num_found_blocks: int
    """That were kept there before and can be used again."""

    def describe(self) -> str:
        """Where blocks are kept, in how much room, and what was there already."""
        place = {"host": "in host memory", "disk": "on disk"}.get(self.tier, f"in {self.tier}")
        found = f", {_count(self.num_found_blocks, 'block')} found" if self.num_found_blocks else ""
        return f"KV kept {place} ({size_text(self.capacity_bytes)}{found})"


@dataclass(frozen=True, kw_only=True)
class EngineInfo:
    """Facts about a loaded model and its engine, fixed after start."""

    model: str
    served_model_names: tuple[str, ...]
    architecture: str
    max_model_len: int
    vocab_size: int
    """Token ids run from 0 to vocab_size - 1."""
    eos_token_ids: tuple[int, ...]
    block_size: int
    num_blocks: int
    kv_bytes_per_token: int
    """Over all layers; below its window a layer keeps nothing."""
    weight_bytes: int
    max_logprobs: int
    max_num_seqs: int
    max_num_batched_tokens: int
    threads: int
    isa: str
    hidden_size: int = 0
    """Numbers in the vector of a prompt."""
    quantization: str = ""
    """What the weights were quantised to as they were loaded; empty: they are as they are stored."""
    kv_dtype: str = "fp16"
    """Number format of K and V."""
    kv_tiers: tuple[KVTierInfo, ...] = ()
    """Behind the device pool, the fastest first."""
    kv_bytes: int = 0
    """Bytes of all blocks."""
    num_kv_tokens: int = 0
    """Tokens that they hold in requests of `max_model_len` tokens."""
    num_full_length_requests: int = 0
    """Requests of `max_model_len` tokens that they hold at one time."""
    kv_root: str = ""
    """Root of the hash chains that name KV blocks, hexadecimal: what another process needs to compute them."""
    async_scheduling: bool = False
    """Each step is planned while the one before it runs."""
    kv_events: KVStreamInfo | None = None
    """None: they are off."""
    step_metrics: StepStreamInfo | None = None
    """None: they are not published."""
    cache_config: dict[str, str] = field(default_factory=dict)
    """The KV memory's settings as they were asked for, for metrics."""
    scheduling_policy: str = "fcfs"
    """Its name."""
    reads_priority: bool = False
    """It looks at the priority of requests."""
    logits_processors: tuple[str, ...] = ()
    """Plug-ins that requests may name, in the order in which they apply."""
    speculation: str = "off"
    """Who guesses what comes next."""
    draft_weight_bytes: int = 0
    """Of `weight_bytes`, those of a model that guesses."""
    draft_kv_bytes_per_token: int = 0
    """Of `kv_bytes_per_token`, those of a model that guesses."""
    sampling_defaults: dict[str, float] = field(default_factory=dict)
    """temperature, top_p, top_k, ... that the model's own generation config recommends."""
    memory: MemoryLedger = field(default_factory=MemoryLedger)
    """What it takes of the machine's memory, by what it is for."""
    start_s: dict[str, float] = field(default_factory=dict)
    """What the core's start took, by phase in their order, in seconds."""

    def describe(self) -> str:
        """What was chosen for this model on this machine, in one line."""
        full_length = f"{self.num_full_length_requests:,} of full length"
        chosen = [
            f"{', '.join(self.served_model_names)}: {_count(self.threads, 'thread')} ({self.isa})",
            self._describe_weights(),
            f"KV {size_text(self.kv_bytes)} = {self.num_kv_tokens:,} tokens ({full_length})",
            f"context {self.max_model_len:,}",
            f"{self.max_num_batched_tokens:,}-token steps",
            _count(self.max_num_seqs, "sequence"),
            self.memory.describe(),
        ]
        chosen += [f"KV in {self.kv_dtype}"] if self.kv_dtype != "fp16" else []
        chosen += [tier.describe() for tier in self.kv_tiers]
        chosen += [f"policy {self.scheduling_policy}"] if self.scheduling_policy != "fcfs" else []
        chosen += [f"logits processors {', '.join(self.logits_processors)}"] if self.logits_processors else []
        chosen += ["planned a step ahead"] if self.async_scheduling else []
        chosen += [self._describe_speculation()] if self.speculation != "off" else []
        chosen += [self.kv_events.describe()] if self.kv_events is not None else []
        chosen += [f"steps at {self.step_metrics.endpoint}"] if self.step_metrics is not None else []
        return ", ".join(chosen)

    def _describe_weights(self) -> str:
        weights = f"{size_text(self.weight_bytes)} weights"
        return f"{weights} ({self.quantization} at load)" if self.quantization else weights

    def _describe_speculation(self) -> str:
        name = f"speculation by {self.speculation}"
        if not self.draft_weight_bytes:
            return name
        weights, kv = size_text(self.draft_weight_bytes), f"{self.draft_kv_bytes_per_token:,} bytes of KV a token"
        return f"{name} ({weights} weights, {kv})"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class ChoiceDelta(msgspec.Struct, frozen=True, kw_only=True):
    """The next piece of one choice. Texts of all deltas concatenate to the whole answer; so do ids and logprobs."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[LogprobRow, ...] | None = None
    """One row per token id where asked for."""
    text_offsets: tuple[int, ...] = ()
    """Per token id, where its text begins in the whole text of the choice, in characters."""
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    """The stop string or stop token id that ended the choice, if one did."""
    error: str | None = None
    error_status: int = 500
    """422: the request asks for what no token fulfils."""
    error_field: str = ""
    """The request field that the error is about, if it is about one."""
    stats: RequestStats | None = None
    """The ledger, with the last delta."""


class GenerationDelta(msgspec.Struct, frozen=True, kw_only=True):
    """One yield of a streaming generation: the delta of one choice, and with the first one facts of the prompt."""

    request_id: str
    choice: ChoiceDelta
    prompt_token_ids: tuple[int, ...]
    num_cached_tokens: int
    """Prompt tokens served from the prefix cache (of the first choice admitted)."""
    prompt_logprobs: tuple[LogprobRow | None, ...] | None = None
    """Present in the first delta of choice 0 where asked for."""


@dataclass(frozen=True, kw_only=True)
class CompletionOutput:
    """One finished choice."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[LogprobRow, ...] | None
    finish_reason: FinishReason
    stop_reason: str | int | None = None
    error: str | None = None
    """What went wrong, with finish_reason error; other choices and requests are untouched."""
    stats: RequestStats | None = None


@dataclass(frozen=True, kw_only=True)
class GenerationOutput:
    """A finished request with all its choices; what `LLM.generate` returns per prompt."""

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    prompt_logprobs: tuple[LogprobRow | None, ...] | None = None
    num_cached_tokens: int = 0

    @property
    def ledger(self) -> tuple[RequestStats | None, ...]:
        """Per choice: what happened to it, in tokens, steps and seconds."""
        return tuple(choice.stats for choice in self.outputs)

    @property
    def request_ledger(self) -> RequestLedger:
        """The same as `/v1/requests/{id}` has it; `octavo.request.ledger_form` writes it down."""
        choices = [
            ChoiceLedger(
                request_id=f"{self.request_id}-{choice.index}",
                state="finished",
                finish_reason=choice.finish_reason,
                stats=choice.stats,
            )
            for choice in self.outputs
            if choice.stats is not None
        ]
        ends = [one.stats.delivered_s or one.stats.finished_s or one.stats.arrival_s for one in choices]
        return RequestLedger(request_id=self.request_id, choices=choices, now_s=max(ends, default=0.0))
