"""A token is the same whether it was read or written: what is computed one by one equals what is computed at once."""

import pytest

from octavo import LLM
from octavo.engine.output import GenerationOutput
from tests.equality.conftest import COMMON, TinyFile
from tests.equality.tiny_models import FAMILIES, FORMATS
from tests.equality.transcript import row_value
from tests.equality.workload import greedy, seeded
from tests.real_models import model_path

PROMPT_TOKENS, ANSWER_TOKENS = 230, 60
"""The answer crosses the border of two partitions of the attention kernel."""


def _rows(output: GenerationOutput) -> list[object]:
    return [row_value(row) for row in output.outputs[0].logprobs or ()]


def _check(llm: LLM, prompt: list[int], num_tokens: int) -> None:
    (answered,) = llm.generate(prompt, seeded(3, num_tokens, logprobs=4))
    written = list(answered.outputs[0].token_ids)
    (read,) = llm.generate([*prompt, *written], greedy(1, prompt_logprobs=4))
    assert [row_value(row) for row in (read.prompt_logprobs or ())[len(prompt) :] if row] == _rows(answered)


def _check_going_on(llm: LLM, prompt: list[int], num_tokens: int) -> None:
    (whole,) = llm.generate(prompt, greedy(num_tokens, logprobs=4))
    written = list(whole.outputs[0].token_ids)
    for given in range(1, num_tokens, 7):
        (rest,) = llm.generate([*prompt, *written[:given]], greedy(num_tokens - given, logprobs=4))
        assert list(rest.outputs[0].token_ids) == written[given:]
        assert _rows(rest) == _rows(whole)[given:]
    assert llm.load().counters["cached_tokens"] > 0


@pytest.mark.parametrize("model", [*FAMILIES, *FORMATS])
def test_tiny(tiny_file: TinyFile, model: str) -> None:
    with LLM(tiny_file(model), **COMMON) as llm:
        prompt = [8 + i * i % 401 for i in range(PROMPT_TOKENS)]
        _check(llm, prompt, ANSWER_TOKENS)
        _check_going_on(llm, prompt, ANSWER_TOKENS)


def test_smollm2() -> None:
    with LLM(str(model_path("smollm2-135m")), max_model_len=256, threads=2) as llm:
        prompt = [100 + i * i % 4001 for i in range(60)]
        _check(llm, prompt, 24)
        _check_going_on(llm, prompt, 24)
