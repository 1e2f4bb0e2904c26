"""GPT-2's program, its two spellings, where its weights stand, and what it refuses."""

import re
from collections.abc import Callable

import pytest

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.model.describe import describe
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Activate, Activation, Attention, EmbedPositions, LayerNorm, Linear, Logits, Rope
from octavo.model.registry import define_model
from octavo.model.sources import Rows, Transposed

WIDTH, HEADS, LAYERS, VOCAB, POSITIONS = 48, 4, 3, 50, 128


def in_gguf(**changes: object) -> CheckpointHeader:
    """Keys without the family's prefix, `__` for a dot; None removes."""
    own: dict[str, object] = {
        "block_count": LAYERS,
        "context_length": POSITIONS,
        "embedding_length": WIDTH,
        "feed_forward_length": 4 * WIDTH,
        "attention.head_count": HEADS,
        "attention.layer_norm_epsilon": 1e-5,
    }
    own |= {key.replace("__", "."): value for key, value in changes.items()}
    metadata = {f"gpt2.{key}": value for key, value in own.items() if value is not None}
    shapes = {"token_embd.weight": (VOCAB, WIDTH), "position_embd.weight": (POSITIONS, WIDTH)}
    return CheckpointHeader("model.gguf", Naming.GGUF, {"general.architecture": "gpt2", **metadata}, shapes)


def in_hf(*, tensors: str = "transformer.wte.weight", **changes: object) -> CheckpointHeader:
    """`tensors`: the name of a tensor that is there."""
    config: dict[str, object] = {
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": VOCAB,
        "n_embd": WIDTH,
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_positions": POSITIONS,
        "n_ctx": POSITIONS,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
    } | changes
    metadata = {key: value for key, value in config.items() if value is not None}
    return CheckpointHeader("folder", Naming.HF, metadata, {tensors: (VOCAB, WIDTH)})


def test_both_spellings_describe_one_program() -> None:
    assert define_model(in_gguf()).program == define_model(in_hf()).program


def test_the_program_is_that_of_the_paper() -> None:
    program = define_model(in_hf()).program
    assert [op for op in program.ops if isinstance(op, Rope)] == []
    assert [op.weight for op in program.ops if isinstance(op, EmbedPositions)] == ["positions"]
    assert all(op.bias is not None for op in program.ops if isinstance(op, Linear | LayerNorm))
    assert {op.activation for op in program.ops if isinstance(op, Activate)} == {Activation.GELU_TANH}
    assert [op.weight for op in program.ops if isinstance(op, Logits)] == ["embed"]
    assert program.max_positions == POSITIONS
    text = describe(program)
    for line in (
        "rotary embeddings  none",
        "h = positions[128, 48][positions]",
        "h = layer_norm(x, eps 1e-05) * layers.0.attn.norm[48] + layers.0.attn.norm.bias[48]",
        "inner = gelu_tanh(inner)",
    ):
        assert line in text


@pytest.mark.parametrize("header", [in_gguf(), in_hf(), in_hf(tie_word_embeddings=False)])
def test_every_weight_has_its_source(header: CheckpointHeader) -> None:
    definition = define_model(header)
    assert definition.sources.keys() == definition.program.weights.keys()


def test_fused_and_turned_tensors() -> None:
    k = Rows(WIDTH, 2 * WIDTH, 3 * WIDTH)
    gguf, hf = define_model(in_gguf()).sources, define_model(in_hf()).sources
    assert (gguf["layers.1.attn.k"].name, gguf["layers.1.attn.k"].transform) == ("blk.1.attn_qkv.weight", k)
    assert hf["layers.1.attn.k"].name == "transformer.h.1.attn.c_attn.weight"
    assert hf["layers.1.attn.k"].transform == Transposed(k)
    assert (hf["layers.1.attn.k.bias"].name, hf["layers.1.attn.k.bias"].transform) == (
        "transformer.h.1.attn.c_attn.bias",
        k,
    )
    assert hf["layers.2.mlp.down"].transform == Transposed()
    assert gguf["layers.2.mlp.down"].transform is None


def test_files_of_the_base_model_have_no_prefix() -> None:
    definition = define_model(in_hf(tensors="wte.weight"))
    assert definition.sources["layers.0.attn.norm.bias"].name == "h.0.ln_1.bias"
    assert set(definition.ignored_tensors) == {"h.*.attn.bias", "h.*.attn.masked_bias", "lm_head.weight"}


@pytest.mark.parametrize(
    ("changes", "scales"),
    [
        ({}, [12**-0.5] * 3),
        ({"scale_attn_weights": False}, [1.0] * 3),
        ({"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}, [12**-0.5 / n for n in (1, 2, 3)]),
    ],
)
def test_scales_of_attention(changes: dict[str, object], scales: list[float]) -> None:
    program = define_model(in_hf(**changes)).program
    assert [op.scale for op in program.ops if isinstance(op, Attention)] == pytest.approx(scales)


def test_an_inner_width_and_another_activation() -> None:
    program = define_model(in_hf(n_inner=80, activation_function="relu")).program
    assert program.weights["layers.0.mlp.up"].shape == (80, WIDTH)
    assert {op.activation for op in program.ops if isinstance(op, Activate)} == {Activation.RELU}


@pytest.mark.parametrize(
    ("spell", "key", "value", "error"),
    [
        (in_hf, "n_embd", None, ModelFileError),
        (in_hf, "n_positions", 0, ModelFileError),
        (in_hf, "n_head", 5, ModelFileError),
        (in_hf, "layer_norm_epsilon", "small", ModelFileError),
        (in_hf, "activation_function", "quick_gelu", UnsupportedModelError),
        (in_hf, "add_cross_attention", True, UnsupportedModelError),
        (in_hf, "pruned_heads", {"0": [1]}, UnsupportedModelError),
        (in_gguf, "block_count", None, ModelFileError),
        (in_gguf, "attention__layer_norm_epsilon", None, ModelFileError),
        (in_gguf, "attention__head_count", 7, ModelFileError),
        (in_gguf, "attention__head_count_kv", 2, UnsupportedModelError),
        (in_gguf, "attention__key_length", 16, UnsupportedModelError),
        (in_gguf, "expert_count", 4, UnsupportedModelError),
        (in_gguf, "context_length", POSITIONS + 1, ModelFileError),
    ],
)
def test_what_is_not_computed_is_named(
    spell: Callable[..., CheckpointHeader], key: str, value: object, error: type[Exception]
) -> None:
    with pytest.raises(error, match=re.escape(key.replace("__", "."))):
        define_model(spell(**{key: value}))
