"""Headers of GGUF files whose architectures Octavo does not run, against the configs of the same models."""

from collections.abc import Mapping

import pytest

from octavo.errors import ModelFileError
from octavo.model.header import CheckpointHeader, Naming
from octavo.planning.models import StoredWeights, priced_model, shipped_model
from octavo.planning.parameters import num_parameters
from octavo.planning.shape import Pricing

NORMS = {"blk.0.attn_norm.weight": (64,), "blk.0.ffn_norm.weight": (64,)}


def header(architecture: str, keys: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]]) -> CheckpointHeader:
    metadata = {"general.architecture": architecture} | {f"{architecture}.{key}": value for key, value in keys.items()}
    return CheckpointHeader(path="model.gguf", naming=Naming.GGUF, metadata=metadata, shapes={**NORMS, **shapes})


DENSE = header(
    "exaone",
    {
        "block_count": 36,
        "embedding_length": 4096,
        "feed_forward_length": 12288,
        "context_length": 40960,
        "attention.head_count": 32,
        "attention.head_count_kv": 8,
        "attention.key_length": 128,
    },
    {"token_embd.weight": (151936, 4096), "output.weight": (151936, 4096), "blk.0.attn_q_norm.weight": (128,)},
)
EXPERTS = header(
    "grok",
    {
        "block_count": 32,
        "embedding_length": 4096,
        "feed_forward_length": 14336,
        "context_length": 32768,
        "attention.head_count": 32,
        "attention.head_count_kv": [8] * 32,
        "expert_count": 8,
        "expert_used_count": 2,
    },
    {"token_embd.weight": (32000, 4096), "output.weight": (32000, 4096)},
)
LATENT_KEYS = {
    "block_count": 61,
    "embedding_length": 7168,
    "feed_forward_length": 18432,
    "context_length": 163840,
    "attention.head_count": 128,
    "attention.head_count_kv": 1,
    "attention.kv_lora_rank": 512,
    "attention.q_lora_rank": 1536,
    "attention.key_length": 576,
    "attention.value_length": 512,
    "attention.key_length_mla": 192,
    "attention.value_length_mla": 128,
    "rope.dimension_count": 64,
    "expert_count": 256,
    "expert_used_count": 8,
    "expert_shared_count": 1,
    "expert_feed_forward_length": 2048,
    "leading_dense_block_count": 3,
}
TABLES = {"token_embd.weight": (129280, 7168), "output.weight": (129280, 7168), "blk.3.exp_probs_b.bias": (256,)}
LATENT = header("deepseek2", LATENT_KEYS, TABLES)
OLDER = {key: value for key, value in LATENT_KEYS.items() if not key.endswith("_mla")}
OLDER_LATENT = header("deepseek2", OLDER | {"attention.key_length": 192, "attention.value_length": 128}, TABLES)


@pytest.mark.parametrize(
    ("read", "name"),
    [(DENSE, "qwen3-8b"), (EXPERTS, "mixtral-8x7b"), (LATENT, "deepseek-v3"), (OLDER_LATENT, "deepseek-v3")],
)
def test_headers_and_configs_of_a_model_give_one_shape(read: CheckpointHeader, name: str) -> None:
    shipped = shipped_model(name).shape
    stored = StoredWeights(num_parameters(shipped) // 2, is_integer=True)
    model = priced_model(read, "model.gguf", stored)
    assert model.shape.layers == shipped.layers
    assert model.shape.max_positions == shipped.max_positions
    assert num_parameters(model.shape) == num_parameters(shipped)
    assert model.shape.priced_by is Pricing.FORMULA
    assert model.weights.bits_per_weight == pytest.approx(4, rel=1e-6)
    assert "priced by formula" in model.shape.notes[0]
    assert "the file holds" in model.shape.notes[1]


def test_tied_tables_and_biases_are_seen_in_the_tensors() -> None:
    shapes = {"token_embd.weight": (1000, 4096), "blk.0.attn_q.bias": (4096,)}
    keys = {key.removeprefix("exaone."): value for key, value in DENSE.metadata.items() if key.startswith("exaone.")}
    shape = priced_model(header("other", keys, shapes), "x", StoredWeights(1, is_integer=False)).shape
    assert shape.tied_embeddings
    assert [matrix.has_bias for matrix in shape.layers[0].matrices] == [True, True, True, False, False, False, False]


def test_sizes_that_differ_between_layers_are_told() -> None:
    keys = {"block_count": 2, "embedding_length": 64, "feed_forward_length": [128, 256], "context_length": 100}
    read = header("other", keys | {"attention.head_count": 4}, {"token_embd.weight": (10, 64)})
    with pytest.raises(ModelFileError, match="intermediate_size"):
        priced_model(read, "x", StoredWeights(1, is_integer=False))
