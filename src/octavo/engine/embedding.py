"""Vectors of prompts on their way from the core to callers."""

from array import array
from dataclasses import dataclass, replace
from sys import byteorder

from octavo.engine.input import PreparedRequest
from octavo.request.outputs import FinishReason, RequestOutput, RequestStats


@dataclass(frozen=True, kw_only=True)
class EmbeddingOutput:
    """The vector of a prompt; what `LLM.embed` returns per prompt."""

    request_id: str
    prompt: str | None
    """None where token ids were given."""
    prompt_token_ids: tuple[int, ...]
    vector: bytes
    """Little-endian float32; empty if it failed. `numpy.frombuffer(vector, "<f4")` reads it without a copy."""
    finish_reason: FinishReason
    error: str | None = None
    """What went wrong, with finish_reason error; other prompts are untouched."""
    error_status: int = 500
    num_cached_tokens: int = 0
    """Prompt tokens served from the prefix cache."""
    stats: RequestStats | None = None

    @property
    def embedding(self) -> list[float]:
        """The vector's numbers, each exactly the float32 that it is."""
        numbers = array("f", self.vector)
        if byteorder == "big":
            numbers.byteswap()
        return numbers.tolist()


class EmbeddingStream:
    """A pooled request while it runs: it has one output, its last."""

    def __init__(self, request: PreparedRequest, prompt: str | None) -> None:
        self.request = request
        self.finished = False
        self._prompt = prompt

    @property
    def unfinished_ids(self) -> list[str]:
        """Core request ids still running; to be aborted when the caller goes away."""
        return [] if self.finished else [choice.request_id for choice in self.request.choices]

    def push(self, output: RequestOutput) -> tuple[EmbeddingOutput | None, None]:
        """Takes the core's output. Returns what comes of it, and None: it never ends otherwise than in the core."""
        self.finished = True
        stats = output.stats
        whole = EmbeddingOutput(
            request_id=self.request.request_id,
            prompt=self._prompt,
            prompt_token_ids=self.request.prompt_token_ids,
            vector=output.vector or b"",
            finish_reason=output.finish_reason or FinishReason.ERROR,
            error=output.error,
            error_status=output.error_status,
            num_cached_tokens=0 if stats is None else stats.num_cached_tokens,
            stats=stats,
        )
        return whole, None

    def with_ledger(self, result: EmbeddingOutput | None, stats: RequestStats) -> EmbeddingOutput | None:
        """See `OutputStream.with_ledger`."""
        return None if result is None else replace(result, stats=stats)
