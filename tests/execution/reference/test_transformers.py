"""The reference executor against transformers in float32, on tiny random models of every family in both formats."""

from pathlib import Path

import numpy as np
import pytest

from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from octavo.execution.protocols import Float32
from octavo.execution.reference import ReferenceExecutor
from octavo.execution.weights import load_model
from tests.execution.driver import Driver, layout_for
from tests.execution.test_weights import FAMILIES, open_tiny

TOKENS = 90

MODELS = {
    "llama": TinyModel(architecture="llama", layers=3),
    "llama, untied, wide heads": TinyModel(architecture="llama", tied=False, head_dim=32, heads=2, kv_heads=1),
    "qwen2": TinyModel(architecture="qwen2", layers=3),
    "qwen2, tied, one KV head": TinyModel(architecture="qwen2", tied=True, kv_heads=1),
    "gpt2": TinyModel(architecture="gpt2", kv_heads=4),
    "gemma3": TinyModel(architecture="gemma3", layers=4, window=16),
    "mixtral": TinyModel(architecture="mixtral"),
    "qwen2_moe": TinyModel(architecture="qwen2_moe", layers=3, dense_layers=(1,), expert_inner=96),
    "qwen3_moe": TinyModel(architecture="qwen3_moe", experts=16, active_experts=4, head_dim=32),
    "gemma3, period of six": TinyModel(architecture="gemma3", layers=7, window=24, window_period=6, head_dim=32),
}


def token_ids() -> list[int]:
    return np.random.default_rng(1).integers(0, 512, TOKENS).tolist()


def reference_logits(folder: Path, model: TinyModel, file_format: str) -> Float32:
    program, weights = load_model(open_tiny(folder, file_format, **vars(model)))
    executor = ReferenceExecutor(program, weights, layout_for(program, tokens=TOKENS), max_rows=TOKENS)
    return np.concatenate([logits.copy() for _, logits in Driver(executor).score(token_ids(), 0, chunk=32)])


@pytest.mark.parametrize("name", MODELS)
def test_both_formats_give_equal_logits(name: str, tmp_path: Path) -> None:
    in_gguf, in_safetensors = (reference_logits(tmp_path, MODELS[name], f) for f in ("gguf", "safetensors"))
    np.testing.assert_allclose(in_gguf, in_safetensors, rtol=1e-5, atol=1e-5)


@pytest.fixture
def transformers_logits(tmp_path: Path):
    """Logits of a tiny model by transformers: a function of the model."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def compute(model: TinyModel) -> Float32:
        folder = write_tiny_model(tmp_path / "hf", model, format="safetensors")
        loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        with torch.no_grad():
            return loaded(torch.tensor([token_ids()])).logits[0].numpy()

    return compute


@pytest.mark.filterwarnings("default")  # what other libraries warn of is not ours to mend
@pytest.mark.parametrize("name", MODELS)
def test_logits_agree_with_transformers(name: str, tmp_path: Path, transformers_logits) -> None:
    expected = transformers_logits(MODELS[name])
    got = reference_logits(tmp_path, MODELS[name], "gguf")
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-5 * np.abs(expected).max())
    assert (got.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.98


def test_all_families_are_compared() -> None:
    assert {model.architecture for model in MODELS.values()} >= set(FAMILIES)
