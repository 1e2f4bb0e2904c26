"""The ways through the engine of the parity matrix. Each gives scored sequences: what was said, and how likely."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from octavo import LLM, SamplingParams
from octavo.engine.output import GenerationOutput
from octavo.request.outputs import LogprobRow
from tests.models.cases import Case

TOP = 20
"""Most probable tokens whose logprobs are compared at each position, beside the chosen one."""
PROMPT_LENGTHS = (75, 22, 30, 18, 26, 34)
TOTAL_LENGTH = 95
"""Of a prompt and its answer: what is short at first grows."""
CHUNK = 7
POOL_TOKENS = 130
"""KV memory that holds one or two of the sequences, of models with windows some more."""


@dataclass(frozen=True)
class Scored:
    """A prompt with its greedy answer, and logprobs that the engine has given."""

    token_ids: tuple[int, ...]
    rows: Mapping[int, LogprobRow]
    """Index of a token that was scored -> its row."""
    num_prompt_tokens: int


def prompts(case: Case) -> list[list[int]]:
    """Random token ids."""
    rng = np.random.default_rng(3)
    return [rng.integers(3, case.arguments["vocab_size"], length).tolist() for length in PROMPT_LENGTHS]


def one_chunk(case: Case, model: Path) -> list[Scored]:
    """The longest prompt in one step, its own tokens scored, too."""
    return _one_prompt(case, model, {})


def chunked(case: Case, model: Path) -> list[Scored]:
    """The same in steps of a few tokens."""
    return _one_prompt(case, model, {"long_prefill_token_threshold": CHUNK})


def cached(case: Case, model: Path) -> list[Scored]:
    """The prompt for the second time, most of it from the prefix cache."""
    with _engine(case, model, {"block_size": 4}) as llm:
        prompt = prompts(case)[0]
        _generate(llm, [prompt])
        outputs = _generate(llm, [prompt])
    assert outputs[0].num_cached_tokens > PROMPT_LENGTHS[0] // 2, outputs[0].num_cached_tokens
    return [_scored(output) for output in outputs]


def preempted(case: Case, model: Path) -> list[Scored]:
    """All prompts at once in a memory that is too small: some are thrown out and computed again."""
    with _engine(case, model, {}) as llm:
        pool = POOL_TOKENS * llm.info.kv_bytes_per_token
    fields = {"block_size": 4, "kv_cache_memory_bytes": pool, "admission_conservativeness": 0.0}
    with _engine(case, model, fields) as llm:
        outputs = _generate(llm, prompts(case))
        assert llm.load().counters["preemptions"] > 0
    return [_scored(output) for output in outputs]


def reference(case: Case, model: Path) -> list[Scored]:
    """The first way again, by the reference executor."""
    return _one_prompt(case, model, {"executor": "reference"})


PATHS: dict[str, Callable[[Case, Path], list[Scored]]] = {
    "one chunk": one_chunk,
    f"chunks of {CHUNK}": chunked,
    "cached prefix": cached,
    "preempted": preempted,
    "reference executor": reference,
}


def _engine(case: Case, model: Path, fields: Mapping[str, object]) -> LLM:
    common = {"max_model_len": case.context, "kv_cache_dtype": "fp32", "threads": 1, "skip_tokenizer_init": True}
    return LLM(model, **{**common, "kv_cache_memory_bytes": 4 << 20, **fields})


def _one_prompt(case: Case, model: Path, fields: Mapping[str, object]) -> list[Scored]:
    with _engine(case, model, fields) as llm:
        return [_scored(output) for output in _generate(llm, [prompts(case)[0]], prompt_logprobs=TOP)]


def _generate(llm: LLM, token_ids: Sequence[list[int]], prompt_logprobs: int | None = None) -> list[GenerationOutput]:
    params = SamplingParams(
        temperature=0, ignore_eos=True, detokenize=False, logprobs=TOP, prompt_logprobs=prompt_logprobs
    )
    each = [params.replace(max_tokens=TOTAL_LENGTH - len(prompt)) for prompt in token_ids]
    return llm.generate(list(token_ids), each)


def _scored(output: GenerationOutput) -> Scored:
    (choice,) = output.outputs
    assert choice.error is None, choice.error
    prompt = output.prompt_token_ids
    rows = {index: row for index, row in enumerate(output.prompt_logprobs or ()) if row is not None}
    rows |= {len(prompt) + index: row for index, row in enumerate(choice.logprobs or ())}
    return Scored((*prompt, *choice.token_ids), rows, len(prompt))
