"""What sets each dense family apart from llama's decoder, as its program and its sources show it."""

from dataclasses import replace

import pytest

from octavo.errors import ModelFileError
from octavo.model.program import (
    Activation,
    Add,
    Attention,
    Embed,
    GatedActivation,
    Linear,
    Logits,
    Op,
    Program,
    RmsNorm,
    Scale,
)
from octavo.model.registry import define_model
from octavo.model.sources import AddOne, Rows, UnpermuteHeads
from tests.model.headers import HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, MLP, WINDOW, gguf, hf, with_shapes


def of_type(program: Program, kind: type) -> list[Op]:
    return [op for op in program.ops if type(op) is kind]


def windows(program: Program) -> list[int | None]:
    return [layer.window for layer in program.cache_layers]


def biased(program: Program) -> set[str]:
    """Parts of a layer that have a bias."""
    return {op.weight.split(".", 2)[2] for op in of_type(program, Linear) if op.bias is not None}


def test_llama_takes_biases_where_the_config_or_the_file_has_them() -> None:
    attention = {"attn.q", "attn.k", "attn.v", "attn.out"}
    assert biased(define_model(hf("llama")).program) == set()
    assert biased(define_model(hf("llama", attention_bias=True)).program) == attention
    assert biased(define_model(hf("llama", mlp_bias=True)).program) == {"mlp.gate", "mlp.up", "mlp.down"}
    shapes = {f"blk.0.attn_{part}.bias": (HIDDEN,) for part in ("q", "output")}
    definition = define_model(with_shapes(gguf("llama"), shapes))
    assert definition.program == define_model(hf("llama", attention_bias=True)).program
    assert definition.sources["layers.3.attn.k.bias"].name == "blk.3.attn_k.bias"
    assert definition.sources["layers.3.attn.k.bias"].transform == UnpermuteHeads(KV_HEADS, HEAD_DIM, HEAD_DIM)


def test_mistral_sees_a_window_in_every_layer() -> None:
    header = hf("mistral")
    assert windows(define_model(header).program) == [WINDOW] * LAYERS
    null = replace(header, metadata={**header.metadata, "sliding_window": None})
    assert windows(define_model(null).program) == [None] * LAYERS
    assert windows(define_model(hf("mistral", sliding_window=None)).program) == [4096] * LAYERS  # the key is missing


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_qwen_sees_windows_from_some_layer_on(family: str) -> None:
    used = {"use_sliding_window": True, "sliding_window": WINDOW}
    assert windows(define_model(hf(family, sliding_window=WINDOW, max_window_layers=3)).program) == [None] * LAYERS
    last = define_model(hf(family, **used, max_window_layers=3)).program
    assert windows(last) == [None] * 3 + [WINDOW] * (LAYERS - 3)
    kinds = ["sliding_attention", *["full_attention"] * (LAYERS - 1)]
    assert windows(define_model(hf(family, **used, layer_types=kinds)).program) == [WINDOW] + [None] * (LAYERS - 1)
    with pytest.raises(ModelFileError, match="layer_types"):
        define_model(hf(family, **used, layer_types=kinds[1:]))


def test_qwen3_norms_every_head_of_q_and_k() -> None:
    definition = define_model(gguf("qwen3"))
    norms = {op.weight.split(".")[-1]: op.groups for op in of_type(definition.program, RmsNorm)}
    assert norms == {"norm": 1, "q_norm": HEADS, "k_norm": KV_HEADS, "output_norm": 1}
    assert definition.sources["layers.2.attn.k_norm"].name == "blk.2.attn_k_norm.weight"
    assert define_model(hf("qwen3", head_dim=None)).program.cache_layers[0].head_dim == 128


@pytest.mark.parametrize("family", ["gemma", "gemma2"])
def test_gemma_scales_embeddings_and_adds_one_to_norms(family: str) -> None:
    definition = define_model(hf(family))
    (embed,) = of_type(definition.program, Embed)
    assert embed.scale == pytest.approx(HIDDEN**0.5)
    assert {op.activation for op in of_type(definition.program, GatedActivation)} == {Activation.GELU_TANH}
    norms = {op.weight for op in of_type(definition.program, RmsNorm)}
    assert {name for name, source in definition.sources.items() if source.transform == AddOne()} == norms
    assert all(source.transform is None for source in define_model(gguf(family)).sources.values())
    assert define_model(hf(family, head_dim=None)).program.cache_layers[0].head_dim == 256


def test_gemmas_first_files_name_gelu_and_mean_its_tanh_form() -> None:
    assert define_model(hf("gemma", hidden_act="gelu")).program == define_model(hf("gemma")).program


def test_gemma2_caps_scores_and_logits_and_alternates_windows() -> None:
    program = define_model(gguf("gemma2")).program
    assert windows(program) == [WINDOW, None] * (LAYERS // 2) + [WINDOW]
    assert {(op.softcap, op.scale) for op in of_type(program, Attention)} == {(50.0, HEAD_DIM**-0.5)}
    assert [op.softcap for op in of_type(program, Logits)] == [30.0]
    free = define_model(hf("gemma2", query_pre_attn_scalar=100, attn_logit_softcapping=0.0)).program
    assert {(op.softcap, op.scale) for op in of_type(free, Attention)} == {(None, 0.1)}
    of_27b = gguf("gemma2", block_count=46, attention__key_length=32, attention__value_length=32)
    assert {op.scale for op in of_type(define_model(of_27b).program, Attention)} == {(HIDDEN // HEADS) ** -0.5}


def test_phi3_takes_its_parts_out_of_fused_matrices() -> None:
    sources = define_model(hf("phi3")).sources
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    fused = "model.layers.1.self_attn.qkv_proj.weight"
    assert {sources[f"layers.1.attn.{part}"].name for part in "qkv"} == {fused}
    assert sources["layers.1.attn.v"].transform == Rows(q + kv, q + 2 * kv, q + 2 * kv)
    assert sources["layers.1.mlp.up"].transform == Rows(MLP, 2 * MLP, 2 * MLP)
    assert sources["layers.1.mlp.down"].transform is None
    assert define_model(gguf("phi3")).sources["layers.1.mlp.gate"].name == "blk.1.ffn_up.weight"


def test_phi3_may_have_a_window_and_an_old_name_for_longrope() -> None:
    for header in (hf("phi3", sliding_window=WINDOW), gguf("phi3", attention__sliding_window=WINDOW)):
        assert windows(define_model(header).program) == [WINDOW] * LAYERS
    scaling = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    found = [
        define_model(hf("phi3", rope_scaling={"type": kind, **scaling}, original_max_position_embeddings=256)).program
        for kind in ("longrope", "su", "yarn")
    ]
    assert found[0] == found[1] == found[2]


def test_granite_multiplies_at_four_places() -> None:
    program = define_model(gguf("granite")).program
    assert of_type(program, Embed)[0].scale == 12
    assert {op.scale for op in of_type(program, Attention)} == {0.0625}
    scales = [(op.x, op.factor) for op in of_type(program, Scale)]
    assert scales == [("h", 0.25)] * (2 * LAYERS) + [("logits", 1 / 8)]
    plain = define_model(gguf("granite", **dict.fromkeys(UNSET, 0.0))).program
    assert plain.ops == define_model(gguf("llama")).program.ops


UNSET = ("embedding_scale", "attention__scale", "residual_scale", "logit_scale")


def test_olmo2_norms_behind_blocks_and_over_all_heads() -> None:
    program = define_model(gguf("olmo2")).program
    norms = {op.weight.split(".")[-1]: (op.x, op.groups) for op in of_type(program, RmsNorm)}
    assert norms == {"q_norm": ("q", 1), "k_norm": ("k", 1), "post_norm": ("h", 1), "output_norm": ("rows", 1)}
    assert program.weights["layers.0.attn.k_norm"].shape == (KV_HEADS * HEAD_DIM,)
    assert {op.x for op in of_type(program, Linear) if op.weight.endswith((".q", ".gate"))} == {"x"}
    assert len(of_type(program, Add)) == 2 * LAYERS
