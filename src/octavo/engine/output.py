"""What callers of the engine see: text and tokens per choice, as deltas while streaming and whole at the end."""

from dataclasses import dataclass, field

from octavo.request.outputs import FinishReason, LogprobRow, RequestStats


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
    weight_bytes: int
    max_logprobs: int
    max_num_seqs: int
    max_num_batched_tokens: int
    threads: int
    isa: str
    sampling_defaults: dict[str, float] = field(default_factory=dict)
    """temperature, top_p, top_k, ... that the model's own generation config recommends."""


@dataclass(frozen=True, kw_only=True)
class ChoiceDelta:
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
    stats: RequestStats | None = None
    """The ledger, with the last delta."""


@dataclass(frozen=True, kw_only=True)
class GenerationDelta:
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
