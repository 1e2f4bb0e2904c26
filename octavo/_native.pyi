"""Types of the native core (csrc/), one section per kernel family."""

import numpy as np
import numpy.typing as npt

_Float32 = npt.NDArray[np.float32]
_Int32 = npt.NDArray[np.int32]
_Float64 = npt.NDArray[np.float64]

# ---- base

class ThreadPool:
    """Compute threads shared by the executor and the sampler."""

    def __init__(self, threads: int) -> None: ...
    @property
    def threads(self) -> int: ...
    def trace_run(self, chunks_by_stage: list[int]) -> list[list[int]]: ...

# ---- sampling

class SlotParams:
    """Sampling parameters of one request, as the native sampler takes them."""

    greedy: bool
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    seed: int
    min_tokens: int
    num_logprobs: int
    logit_bias: list[tuple[int, float]]
    allowed_token_ids: list[int]
    bad_words: list[list[int]]
    stop_token_ids: list[int]

    def __init__(self) -> None: ...

_LogprobColumns = tuple[_Int32, _Float32, _Int32, _Int32]

class Sampler:
    """The native sampler; `octavo.decoding.sampler.NativeSampler` wraps it."""

    def __init__(self, pool: ThreadPool, vocab_size: int, valid_vocab_size: int, isa: str) -> None: ...
    def add(self, slot: int, params: SlotParams, prompt_token_ids: list[int], output_token_ids: list[int]) -> None: ...
    def remove(self, slot: int) -> None: ...
    def sample(self, logits: _Float32, slots: _Int32) -> tuple[_Int32, _Int32, _LogprobColumns]: ...
    def score(self, logits: _Float32, targets: _Int32, num_logprobs: int) -> _LogprobColumns: ...
    def adjust(self, logits: _Float32, slot: int) -> _Float32: ...
    def candidates(self, logits: _Float32, slot: int) -> list[int]: ...

def philox4x32(counter: list[int], key: int) -> list[int]: ...
def exponential_noise(seed: int, position: int, num_tokens: int, isa: str) -> _Float64: ...
