"""A model that transformers makes, written as GGUF, is the same program over the same numbers (in float16) as its
folder: what the matrix shows of one holds for the other."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from octavo.conversion.verify import program_difference
from octavo.execution.loader import open_checkpoint
from octavo.execution.loader.tiny import TinyModel
from octavo.execution.loader.tiny.tokenizer_json import tokenizer_config, tokenizer_json
from octavo.execution.loader.tiny.vocabulary import build_vocabulary
from octavo.execution.weights import load_model
from octavo.model.registry import BUILT_IN
from tests.conversion.rig import converted
from tests.models.cases import CASES, SMALL, Case
from tests.models.oracle import Transformers

_HEADS = {"head_dim": 32, "query_pre_attn_scalar": 32}
"""GGUF has no key for the scalar of gemma's scores."""
WRITABLE: dict[str, Case] = {
    "llama": CASES["llama, tied, llama3 scaling"],
    "qwen2": CASES["qwen2"],
    "qwen3": CASES["qwen3"],
    "gemma": CASES["gemma"],
    "gemma2": Case("gemma2", {**_HEADS, "sliding_window": 20}),
    "gemma3": Case("gemma3_text", {**_HEADS, "sliding_window": 20, "num_hidden_layers": 6}),
    "phi3": CASES["phi3, part of a head turns"],
    "granite": CASES["granite"],
    "olmo2": CASES["olmo2"],
}
"""By GGUF's name of the architecture."""


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of a case with a vocabulary of its size."""
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: pip install 'octavo[oracle]'")
    made = Transformers(WRITABLE[request.param], tmp_path / "hf").folder
    like = TinyModel(vocab_size=SMALL["vocab_size"])
    vocabulary = build_vocabulary(like)
    (made / "tokenizer.json").write_text(json.dumps(tokenizer_json(like, vocabulary)))
    (made / "tokenizer_config.json").write_text(json.dumps(tokenizer_config(vocabulary)))
    return made


@pytest.mark.filterwarnings("default")  # what other libraries warn of is not ours to mend
@pytest.mark.parametrize("folder", WRITABLE, indirect=True)
def test_the_file_is_the_same_model(folder: Path, tmp_path: Path) -> None:
    converted(folder, "F16", tmp_path / "out.gguf", threads=1)
    written, numbers = load_model(open_checkpoint([tmp_path / "out.gguf"]))
    program, expected = load_model(open_checkpoint([folder / "model.safetensors"]))
    assert program_difference(program, written) is None
    for name, weight in expected.items():
        exact = weight.float32()
        rounded = exact.astype(np.float16).astype(np.float32) if exact.ndim == 2 else exact
        np.testing.assert_array_equal(numbers[name].float32(), rounded, err_msg=name)


def test_every_decoder_of_llamas_kin_is_written() -> None:
    known = {name for family in BUILT_IN for name in family.gguf_architectures}
    assert {name for name in known if not name.endswith("moe")} == {*WRITABLE, "gpt2"}, "tests/conversion has gpt2"
