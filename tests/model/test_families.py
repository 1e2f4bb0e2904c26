"""Each family's program, its two spellings, and what it refuses."""

import pytest

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.model.header import Naming
from octavo.model.program import Activation, Attention, Embed, Linear, Logits, RmsNorm, Rope
from octavo.model.registry import define_model
from octavo.model.sources import AddOne, ModelDefinition, UnpermuteHeads
from tests.model import headers
from tests.model.headers import HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, VOCAB, WINDOW, gguf, hf

FAMILIES = ("llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3", "granite", "olmo2")


def of_type(definition: ModelDefinition, kind: type) -> list:
    return [op for op in definition.program.ops if type(op) is kind]


@pytest.mark.parametrize("family", FAMILIES)
def test_both_spellings_describe_one_program(family: str) -> None:
    assert define_model(gguf(family)).program == define_model(hf(family)).program


@pytest.mark.parametrize("spell", [gguf, hf])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_has_exactly_one_source(family: str, spell) -> None:
    definition = define_model(spell(family))
    assert definition.sources.keys() == definition.program.weights.keys()
    sources = list(definition.sources.values())
    assert len(set(sources)) == len(sources)


@pytest.mark.parametrize("family", FAMILIES)
def test_sizes_reach_the_program(family: str) -> None:
    program = define_model(gguf(family)).program
    assert (program.vocab_size, program.max_positions) == (VOCAB, headers.CONTEXT)
    assert {(c.kv_heads, c.head_dim) for c in program.cache_layers} == {(KV_HEADS, HEAD_DIM)}
    assert len(program.cache_layers) == LAYERS
    assert program.buffers["q"].width == HEADS * HEAD_DIM
    assert program.buffers[program.outputs["logits"]].dim == "rows"
    assert program.weights["layers.0.mlp.down"].shape == (HIDDEN, headers.MLP)


def test_llama_unpermutes_q_and_k_of_gguf_files_only() -> None:
    sources = define_model(gguf("llama")).sources
    permuted = {name: source.transform for name, source in sources.items() if source.transform is not None}
    assert permuted["layers.0.attn.q"] == UnpermuteHeads(HEADS, HEAD_DIM, HEAD_DIM)
    assert permuted["layers.0.attn.k"] == UnpermuteHeads(KV_HEADS, HEAD_DIM, HEAD_DIM)
    assert len(permuted) == 2 * LAYERS
    assert all(source.transform is None for source in define_model(hf("llama")).sources.values())


def test_untied_llama_has_a_weight_of_its_own_for_the_logits() -> None:
    in_gguf = define_model(headers.with_shapes(gguf("llama"), {"output.weight": (VOCAB, HIDDEN)}))
    in_hf = define_model(hf("llama", tie_word_embeddings=False))
    assert in_gguf.program == in_hf.program
    assert in_gguf.program.weights["output"].shape == (VOCAB, HIDDEN)
    assert (in_gguf.sources["output"].name, in_hf.sources["output"].name) == ("output.weight", "lm_head.weight")


def test_tied_llama_reads_the_embedding_again() -> None:
    definition = define_model(hf("llama"))
    assert [op.weight for op in of_type(definition, Logits)] == ["embed"]
    assert "lm_head.weight" in definition.ignored_tensors


def test_qwen2_adds_biases_to_q_k_v_and_to_nothing_else() -> None:
    definition = define_model(gguf("qwen2"))
    biased = {op.weight.split(".")[-1] for op in of_type(definition, Linear) if op.bias is not None}
    assert biased == {"q", "k", "v"}
    assert definition.sources["layers.6.attn.v.bias"].name == "blk.6.attn_v.bias"


def test_gemma3_alternates_windows_and_rotary_bases() -> None:
    program = define_model(gguf("gemma3")).program
    windows = [layer.window for layer in program.cache_layers]
    assert windows == [WINDOW] * 5 + [None] + [WINDOW]
    ropes = [op.rope for op in program.ops if isinstance(op, Rope)][::2]
    assert ropes == [0] * 5 + [1] + [0]
    slowest = [rope.inv_freq[-1] for rope in program.ropes]
    assert slowest == pytest.approx([10000.0 ** (-14 / 16), 1e6 ** (-14 / 16)])


def test_gemma3_scales_norms_and_gates_in_its_own_way() -> None:
    definition = define_model(hf("gemma3"))
    assert of_type(definition, Embed)[0].scale == pytest.approx(HIDDEN**0.5)
    groups = {op.weight.split(".")[-1]: op.groups for op in of_type(definition, RmsNorm)}
    assert groups == {"norm": 1, "q_norm": HEADS, "k_norm": KV_HEADS, "post_norm": 1, "output_norm": 1}
    assert {op.scale for op in of_type(definition, Attention)} == {HEAD_DIM**-0.5}
    added = {name.split(".")[-1] for name, source in definition.sources.items() if source.transform == AddOne()}
    assert added == {"norm", "q_norm", "k_norm", "post_norm", "output_norm"}
    assert all(source.transform is None for source in define_model(gguf("gemma3")).sources.values())
    assert all(op.activation is Activation.GELU_TANH for op in definition.program.ops if hasattr(op, "activation"))


def test_gemma3_takes_an_explicit_pattern() -> None:
    pattern = (True, False, True, True, False, True, True)
    kinds = ["sliding_attention" if sliding else "full_attention" for sliding in pattern]
    want = [WINDOW if sliding else None for sliding in pattern]
    for header in (gguf("gemma3", attention__sliding_window_pattern=pattern), hf("gemma3", layer_types=kinds)):
        assert [layer.window for layer in define_model(header).program.cache_layers] == want


def test_gemma3_takes_a_period() -> None:
    for header in (gguf("gemma3", attention__sliding_window_pattern=2), hf("gemma3", sliding_window_pattern=2)):
        full = [i for i, layer in enumerate(define_model(header).program.cache_layers) if layer.window is None]
        assert full == [1, 3, 5]


def test_gemma3_scales_only_the_full_layers_positions() -> None:
    plain = define_model(gguf("gemma3")).program.ropes
    scaling = {"rope_type": "linear", "factor": 8.0}
    in_parameters = {"full_attention": {"rope_theta": 1e6, **scaling}, "sliding_attention": {"rope_theta": 10000.0}}
    for header in (
        gguf("gemma3", rope__scaling__type="linear", rope__scaling__factor=8.0),
        hf("gemma3", rope_scaling=scaling),
        hf("gemma3", rope_parameters=in_parameters, rope_theta=None),
    ):
        local, full = define_model(header).program.ropes
        assert local == plain[0]
        assert full.inv_freq == tuple(f / 8 for f in plain[1].inv_freq)


def test_gemma3_27b_has_its_own_attention_scale_in_gguf() -> None:
    program = define_model(gguf("gemma3", block_count=62, attention__key_length=32, attention__value_length=32)).program
    assert {op.scale for op in program.ops if isinstance(op, Attention)} == {(HIDDEN // HEADS) ** -0.5}


def test_gemma3_caps_logits_where_the_file_says_so() -> None:
    for header in (gguf("gemma3", final_logit_softcapping=30.0), hf("gemma3", final_logit_softcapping=30.0)):
        assert of_type(define_model(header), Logits)[0].softcap == 30.0
    assert of_type(define_model(hf("gemma3")), Logits)[0].softcap is None


NEEDED = {
    Naming.GGUF: (
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ),
    Naming.HF: (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
        "rms_norm_eps",
    ),
}


@pytest.mark.parametrize("key", NEEDED[Naming.GGUF])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_missing_gguf_key_is_named(family: str, key: str) -> None:
    with pytest.raises(ModelFileError, match=rf"lacks {family}\.{key}"):
        define_model(gguf(family, **{key.replace(".", "__"): None}))


@pytest.mark.parametrize("key", NEEDED[Naming.HF])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_missing_config_key_is_named(family: str, key: str) -> None:
    with pytest.raises(ModelFileError, match=f"lacks {key}"):
        define_model(hf(family, **{key: None}))


def test_gemma3_needs_its_window() -> None:
    with pytest.raises(ModelFileError, match=r"gemma3\.attention\.sliding_window"):
        define_model(gguf("gemma3", attention__sliding_window=None))
    with pytest.raises(ModelFileError, match="sliding_window"):
        define_model(hf("gemma3", sliding_window=None))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("block_count", 2**31),
        ("block_count", "7"),
        ("embedding_length", -64),
        ("embedding_length", True),
        ("feed_forward_length", 96.0),
        ("attention__head_count", 10**9),
        ("attention__head_count_kv", 3),
        ("attention__head_count_kv", 5),
        ("attention__layer_norm_rms_epsilon", 0.0),
        ("attention__layer_norm_rms_epsilon", float("nan")),
        ("rope__freq_base", 0.0),
        ("rope__freq_base", float("inf")),
        ("rope__dimension_count", 18),
        ("rope__dimension_count", 7),
        ("context_length", 0),
        ("feed_forward_length", (96, 96)),
    ],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_absurd_gguf_value_is_named(family: str, key: str, value: object) -> None:
    with pytest.raises(ModelFileError, match=key.replace("__", r"\.")):
        define_model(gguf(family, **{key: value}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("vocab_size", 0),
        ("hidden_size", 2**40),
        ("num_hidden_layers", None),
        ("num_key_value_heads", 3),
        ("rms_norm_eps", "1e-5"),
        ("rms_norm_eps", -1.0),
        ("rope_theta", -1),
        ("tie_word_embeddings", 1),
        ("head_dim", 100_000),
        ("rope_scaling", "linear"),
        ("rope_scaling", {"rope_type": "linear", "factor": 0}),
    ],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_absurd_config_value_is_named(family: str, key: str, value: object) -> None:
    with pytest.raises(ModelFileError, match=key):
        define_model(hf(family, **{key: value}))


def test_odd_heads_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="head size of 15"):
        define_model(hf("llama", head_dim=15))


def test_a_width_that_heads_do_not_divide_needs_a_head_size() -> None:
    with pytest.raises(ModelFileError, match="head_dim"):
        define_model(hf("llama", num_attention_heads=6, num_key_value_heads=6))
    assert define_model(hf("llama", num_attention_heads=6, num_key_value_heads=6, head_dim=16)).program.name


GGUF_FEATURES = [
    ("llama", "expert_shared_count", 1),
    ("qwen2", "expert_count", 60),
    ("gemma3", "expert_used_count", 2),
    ("llama", "attention.sliding_window", 4096),
    ("qwen2", "attention.sliding_window", 4096),
    ("llama", "rope.scaling.type", "dynamic"),
    ("qwen2", "rope.scaling.yarn_log_multiplier", 0.1),
    ("gemma", "attention.sliding_window", 4096),
    ("gemma2", "embedding_scale", 2.0),
    ("phi3", "attention.scale", 0.1),
    ("granite", "final_logit_softcapping", 30.0),
    ("olmo2", "attention.sliding_window", 4096),
    ("qwen3", "attention.max_alibi_bias", 8.0),
    ("llama", "attention.value_length", 32),
    ("llama", "logit_scale", 0.5),
    ("llama", "attention.scale", 0.1),
    ("llama", "final_logit_softcapping", 30.0),
    ("qwen2", "rope.dimension_sections", (16, 24, 24, 0)),
    ("gemma3", "attn_logit_softcapping", 50.0),
    ("llama", "attention.causal", False),
    ("llama", "feed_forward_length", (96, 96, 96, 96, 96, 96, 128)),
    ("llama", "attention.head_count_kv", (2, 2, 2, 2, 2, 2, 4)),
]


@pytest.mark.parametrize(("family", "key", "value"), GGUF_FEATURES)
def test_gguf_features_that_are_not_computed_are_refused_by_name(family: str, key: str, value: object) -> None:
    with pytest.raises(UnsupportedModelError, match=key.replace(".", r"\.")):
        define_model(gguf(family, **{key.replace(".", "__"): value}))


HF_FEATURES = [
    ("llama", "hidden_act", "gelu"),
    ("mistral", "hidden_act", "gelu"),
    ("mistral", "layer_types", ["full_attention"] * LAYERS),
    ("qwen3", "num_experts", 60),
    ("qwen3", "layer_types", ["sliding_attention"] * LAYERS),
    ("gemma", "use_bidirectional_attention", True),
    ("gemma", "hidden_act", "silu"),
    ("gemma2", "hidden_activation", "gelu"),
    ("gemma2", "use_bidirectional_attention", True),
    ("phi3", "hidden_act", "gelu"),
    ("phi3", "rope_scaling", {"rope_type": "mrope"}),
    ("granite", "num_local_experts", 32),
    ("olmo2", "hidden_act", "gelu"),
    ("llama", "num_local_experts", 8),
    ("qwen2", "num_experts", 60),
    ("qwen2", "layer_types", ["sliding_attention"] * LAYERS),
    ("gemma3", "use_bidirectional_attention", True),
    ("gemma3", "attn_logit_softcapping", 50.0),
    ("gemma3", "hidden_activation", "gelu"),
    ("llama", "partial_rotary_factor", 0.5),
    ("llama", "rope_scaling", {"rope_type": "mrope", "factor": 2.0}),
    ("gemma3", "rope_scaling", {"rope_type": "proportional", "factor": 2.0}),
]


@pytest.mark.parametrize(("family", "key", "value"), HF_FEATURES)
def test_config_features_that_are_not_computed_are_refused_by_name(family: str, key: str, value: object) -> None:
    with pytest.raises(UnsupportedModelError, match=key):
        define_model(hf(family, **{key: value}))


def test_settings_that_switch_nothing_on_are_accepted() -> None:
    plain = define_model(hf("qwen2")).program
    off = {"use_sliding_window": False, "sliding_window": 32768, "max_window_layers": 28, "rope_scaling": None}
    assert define_model(hf("qwen2", **off, layer_types=["full_attention"] * LAYERS)).program == plain
    assert define_model(gguf("llama", expert_count=0, rope__scaling__type="none", attention__causal=True)).program
    assert (
        define_model(gguf("llama", feed_forward_length=(96,) * LAYERS)).program == define_model(gguf("llama")).program
    )
