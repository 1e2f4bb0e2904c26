"""Quantised checkpoints through an engine, beside twins that hold the same numbers as floats."""

from pathlib import Path

import numpy as np
import pytest

from octavo import LLM, SamplingParams
from tests.execution.quant_methods.checkpoints import write, write_twin
from tests.execution.quant_methods.kinds import KINDS

PROMPT = [5 + 7 * i % 360 for i in range(60)]
EXACT = ["float8 per channel", "fp8 per block", "gptq, groups of 16"]
"""Float formats: the twin computes the same products in the same order."""
ROUNDING = ["awq", "gptq", "gptq, act-order", "gptq, 8 bits", "W4A16, asymmetric", "W8A8", "W8A8, bf16 scales"]
"""Formats of whole numbers, whose inputs are rounded to 8 bits."""
MEAN, MOST = 0.2, 1.2
"""Difference of logprobs, which lie about -6. On this model rounded inputs alone make 0.07 to 0.10 (most: 0.54)."""


def scores(folder: Path) -> np.ndarray:
    """Logprobs of the prompt's own tokens."""
    with LLM(str(folder), threads=1, kv_cache_dtype="fp32", kv_cache_memory_bytes=1 << 24, max_model_len=256) as llm:
        (output,) = llm.generate([PROMPT], SamplingParams(max_tokens=1, prompt_logprobs=0))
    assert output.prompt_logprobs is not None
    return np.array([row.logprobs[0] for row in output.prompt_logprobs[1:] if row is not None])


@pytest.mark.parametrize("name", [*EXACT, *ROUNDING])
def test_logprobs_are_those_of_the_numbers(name: str, tmp_path: Path) -> None:
    write_twin(tmp_path / "twin", write(tmp_path / "packed", KINDS[name][0]))
    packed, twin = scores(tmp_path / "packed"), scores(tmp_path / "twin")
    difference = np.abs(packed - twin)
    if name in EXACT:
        assert (packed == twin).all()
    assert difference.mean() < MEAN
    assert difference.max() < MOST
