"""Quantised while it loads = quantised by the command, weight for weight and token for token."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest

from octavo.config import Quantization, choices
from octavo.engine.llm import LLM
from octavo.engine.quantization import quantised_at_load
from octavo.errors import ConfigError
from octavo.execution.loader import open_checkpoint
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from octavo.execution.quant import TensorType
from octavo.execution.quant.recipe import TYPES
from octavo.execution.weights import load_model
from octavo.request.params import SamplingParams
from octavo.text.tokenizer import from_hf
from tests.conversion.rig import WIDE, converted

PROMPT = list(range(1, 40))


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf", TinyModel(**WIDE))


@pytest.mark.parametrize("name", ["q8_0", "q4_k", "q2_k", "iq4_nl", "bf16"])
def test_the_weights_are_those_of_the_command(name: str, floats: Path, tmp_path: Path) -> None:
    converted(floats, name.upper(), tmp_path / "out.gguf")
    _, from_file = load_model(open_checkpoint([tmp_path / "out.gguf"]))
    program, stored = load_model(open_checkpoint([floats]))
    at_load = quantised_at_load(name, program, stored, threads=2)
    for weight, expected in from_file.items():
        assert at_load[weight].type is expected.type
        np.testing.assert_array_equal(at_load[weight].raw, expected.raw, err_msg=weight)


def test_the_tokens_are_those_of_the_command(floats: Path, tmp_path: Path) -> None:
    converted(floats, "Q4_K", tmp_path / "out.gguf")
    params = SamplingParams(temperature=0.0, max_tokens=24, logprobs=2, ignore_eos=True)
    answers = []
    for model, settings in ((tmp_path / "out.gguf", {}), (floats, {"quantization": "q4_k"})):
        with LLM(str(model), threads=1, num_kv_blocks=16, **settings) as llm:
            answers.append(llm.generate([PROMPT], params)[0].outputs[0])
            described = llm.info.describe()
    assert "(q4_k at load)" in described
    assert answers[0].token_ids == answers[1].token_ids
    assert answers[0].logprobs == answers[1].logprobs


def test_rows_without_a_token_are_drawn_in_neither_way(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "hf", TinyModel(tied=False, **WIDE), format="safetensors")
    num_tokens = from_hf(folder).vocab_size
    with_rows_scaled(folder / "model.safetensors", "lm_head.weight", num_tokens, 100.0)
    converted(folder, "Q4_K", tmp_path / "out.gguf")
    greedy = SamplingParams(temperature=0.0, max_tokens=8, logprobs=2, ignore_eos=True)
    answers = []
    for model, settings in ((tmp_path / "out.gguf", {}), (folder, {"quantization": "q4_k"})):
        with LLM(str(model), threads=1, num_kv_blocks=16, **settings) as llm:
            answers.append(llm.generate([PROMPT], greedy)[0].outputs[0])
            assert llm.info.vocab_size == num_tokens < 512
    assert max(answers[0].token_ids) < num_tokens
    assert answers[0].token_ids == answers[1].token_ids
    assert answers[0].logprobs == answers[1].logprobs


def with_rows_scaled(file: Path, tensor: str, first: int, factor: float) -> None:
    """Multiplies the rows of a float32 matrix from `first` on, so that their logits are the largest."""
    length = int.from_bytes(file.read_bytes()[:8], "little")
    info = json.loads(file.read_bytes()[8 : 8 + length])[tensor]
    at = 8 + length + info["data_offsets"][0]
    rows = np.memmap(file, np.float32, "r+", at, tuple(info["shape"]))
    rows[first:] *= factor
    rows.flush()


def test_what_cannot_be_honoured_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program, stored = load_model(
        open_checkpoint([write_tiny_model(tmp_path / "q.gguf", TinyModel(tensor_type=TensorType.Q5_0, **WIDE))])
    )
    with pytest.raises(ConfigError, match=r"q8_0.: would change nothing: .* in Q5_0 already"):
        quantised_at_load("q8_0", program, stored, threads=1)
    with pytest.raises(ConfigError, match="quantization='q9': must be one of q8_0"):
        quantised_at_load("q9", program, stored, threads=1)
    with caplog.at_level(logging.WARNING):
        quantised_at_load("q4_0", program, stored, threads=1)
    assert "quantised to q4_0 from" in caplog.text


def test_settings_and_recipes_know_the_same_types() -> None:
    assert choices(Quantization) == TYPES
