"""Vectors next to those made of transformers' hidden states in float32: tiny random models of every family, and
SmolLM2 with its weights dequantised."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from octavo import LLM, PoolingParams
from octavo.execution.loader import open_checkpoint
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from octavo.execution.quant import TensorType
from octavo.execution.weights import load_model
from tests.real_models import model_path

Float64 = npt.NDArray[np.float64]
TINY = {
    "llama": TinyModel(architecture="llama", layers=3, tensor_type=TensorType.F32),
    "qwen2": TinyModel(architecture="qwen2", layers=3, tensor_type=TensorType.F32),
    "gemma3": TinyModel(architecture="gemma3", layers=4, window=16, tensor_type=TensorType.F32),
}
FIELDS = {"max_model_len": 256, "threads": 1, "kv_cache_dtype": "fp32", "kv_cache_memory_bytes": 64 * 2**20}
TEXTS = [
    "Paris",
    "The capital of France is Paris.",
    "def fold(sheet, times):\n    return sheet if times == 0 else fold(sheet / 2, times - 1)\n",
    "A printed sheet folded three times makes eight leaves, and so sixteen pages. " * 12,
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
]
pytestmark = pytest.mark.filterwarnings("default")  # what other libraries warn of is not ours to mend


def pooled(states: Float64, pooling: str) -> Float64:
    vector = states[-1] if pooling == "last" else states.mean(axis=0)
    return vector / np.linalg.norm(vector)


def states_of(model: Any, prompts: list[list[int]]) -> list[Float64]:
    """Hidden states behind the last norm, of a model of transformers."""
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        return [model.model(torch.tensor([ids])).last_hidden_state[0].double().numpy() for ids in prompts]


def read_folder(folder: Path) -> Any:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


HF_NAMES = {
    "embed": "embed_tokens",
    "output_norm": "norm",
    "attn.norm": "input_layernorm",
    "attn.q": "self_attn.q_proj",
    "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj",
    "attn.out": "self_attn.o_proj",
    "mlp.norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}


def read_llama(path: Path) -> Any:
    """A llama in GGUF with its weights dequantised."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    checkpoint = open_checkpoint([path])
    _, weights = load_model(checkpoint)
    given = {key.removeprefix("llama."): value for key, value in checkpoint.metadata.items()}
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=weights["embed"].shape[0],
            hidden_size=given["embedding_length"],
            intermediate_size=given["feed_forward_length"],
            num_hidden_layers=given["block_count"],
            num_attention_heads=given["attention.head_count"],
            num_key_value_heads=given["attention.head_count_kv"],
            rms_norm_eps=given["attention.layer_norm_rms_epsilon"],
            max_position_embeddings=given["context_length"],
            rope_parameters={"rope_type": "default", "rope_theta": given["rope.freq_base"]},
            tie_word_embeddings=True,
        )
    )
    state = {f"model.{_hf_name(name)}.weight": torch.tensor(weight.float32()) for name, weight in weights.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    return model


def _hf_name(name: str) -> str:
    layer = re.match(r"layers\.\d+\.", name)
    prefix = layer[0] if layer else ""
    return prefix + HF_NAMES[name.removeprefix(prefix)]


def vectors_of(llm: LLM, prompts: list[list[int]], pooling: str) -> list[Float64]:
    outputs = llm.embed(prompts, PoolingParams(pooling=pooling))  # type: ignore[arg-type]
    assert not [output.error for output in outputs if output.error]
    return [np.frombuffer(output.vector, "<f4").astype(np.float64) for output in outputs]


@pytest.mark.parametrize("executor", ["native", "reference"])
@pytest.mark.parametrize("family", TINY)
def test_tiny_models(tmp_path: Path, family: str, executor: str) -> None:
    words = np.random.default_rng(4)
    prompts = [words.integers(0, 512, count).tolist() for count in (1, 2, 17, 90, 200)]
    states = states_of(read_folder(write_tiny_model(tmp_path / "hf", TINY[family], format="safetensors")), prompts)
    with LLM(write_tiny_model(tmp_path / "tiny.gguf", TINY[family]), executor=executor, **FIELDS) as llm:
        for pooling in ("last", "mean"):
            for vector, expected in zip(vectors_of(llm, prompts, pooling), states, strict=True):
                np.testing.assert_allclose(vector, pooled(expected, pooling), atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_smollm2(smollm2_states: tuple[list[list[int]], list[Float64]], pooling: str) -> None:
    """The native executor rounds activations to 8 bits, the reference executor does not."""
    prompts, states = smollm2_states
    bounds = {"native": 0.999, "reference": 0.99999}
    for executor, least in bounds.items():
        with LLM(model_path("smollm2-135m"), **{**FIELDS, "executor": executor}) as llm:
            cosines = [
                float(vector @ pooled(expected, pooling))
                for vector, expected in zip(vectors_of(llm, prompts, pooling), states, strict=True)
            ]
        assert min(cosines) > least, (executor, cosines)


@pytest.fixture(scope="module")
def smollm2_states() -> tuple[list[list[int]], list[Float64]]:
    path = model_path("smollm2-135m")
    with LLM(path, **FIELDS) as llm:
        prompts = [list(output.prompt_token_ids) for output in llm.embed(TEXTS)]
    return prompts, states_of(read_llama(path), prompts)
