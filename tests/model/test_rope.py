"""Rotary frequencies and their scalings."""

import math
from dataclasses import replace

import pytest

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.model.families.sizes import hf_fields, hf_sizes
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader
from octavo.model.registry import define_model
from octavo.model.rope import rope_spec, scaled_rope
from octavo.model.rope_scaling import Turning, llama3_divisors
from tests.model.headers import CONTEXT, HEAD_DIM, gguf, hf

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}


def test_frequencies_fall_geometrically() -> None:
    spec = rope_spec(8, 10000.0)
    assert spec.inv_freq == pytest.approx([1.0, 0.1, 0.01, 0.001])
    assert spec.magnitude == 1.0


def test_linear_scaling_divides_all() -> None:
    plain = define_model(hf("llama")).program.ropes[0]
    for header in (
        hf("llama", rope_scaling={"type": "linear", "factor": 4.0}),
        hf("llama", rope_theta=None, rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}),
        gguf("llama", rope__scaling__type="linear", rope__scaling__factor=4.0),
        gguf("llama", rope__scale_linear=4.0),
    ):
        scaled = define_model(header).program.ropes[0]
        assert scaled.inv_freq == tuple(f / 4 for f in plain.inv_freq)


def test_a_scaling_type_of_none_switches_the_factor_off() -> None:
    header = gguf("llama", rope__scaling__type="none", rope__scaling__factor=4.0)
    assert define_model(header).program == define_model(gguf("llama")).program


def test_llama3_keeps_short_waves_and_stretches_long_ones() -> None:
    divisors = llama3_divisors(Turning(64, 500000.0, 2048, 2048), Fields("", LLAMA3))
    turns = [256 * 500000.0 ** (-2 * i / 64) / (2 * math.pi) for i in range(32)]
    for divisor, n in zip(divisors, turns, strict=True):
        if n > 4:
            assert divisor == 1
        elif n < 1:
            assert divisor == 8
        else:
            kept = (n - 1) / 3
            assert 1 / divisor == pytest.approx(kept + (1 - kept) / 8)
    assert divisors == sorted(divisors)
    assert any(1 < d < 8 for d in divisors)


def test_llama3_scaling_needs_ordered_bounds_and_all_keys() -> None:
    with pytest.raises(ModelFileError, match="high_freq_factor"):
        define_model(hf("llama", rope_scaling={**LLAMA3, "high_freq_factor": 1.0}))
    for key in LLAMA3.keys() - {"rope_type"}:
        with pytest.raises(ModelFileError, match=rf"rope_scaling.*lacks {key}"):
            define_model(hf("llama", rope_scaling={k: v for k, v in LLAMA3.items() if k != key}))


def with_factors(header: CheckpointHeader, *factors: float) -> CheckpointHeader:
    return replace(header, rope_factors=factors)


def test_gguf_factors_divide_each_frequency_and_agree_with_the_config() -> None:
    divisors = llama3_divisors(Turning(HEAD_DIM, 10000.0, CONTEXT, CONTEXT), Fields("", LLAMA3))
    from_gguf = define_model(with_factors(gguf("llama"), *divisors)).program
    assert from_gguf == define_model(hf("llama", rope_scaling=LLAMA3)).program


def test_gguf_factors_are_checked() -> None:
    with pytest.raises(ModelFileError, match=r"rope_freqs\.weight=.* holds 3 values"):
        define_model(with_factors(gguf("llama"), 1.0, 1.0, 1.0))
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ModelFileError, match=r"rope_freqs\.weight=.* holds a value outside"):
            define_model(with_factors(gguf("llama"), *[1.0] * 7, bad))


def test_unknown_scalings_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedModelError, match=r"rope_type='mrope'.*default, linear, dynamic, llama3, yarn"):
        scaled_rope(Fields("config.json: rope_scaling", {"rope_type": "mrope"}), hf_sizes(hf_fields(hf("llama"))), None)


def test_part_of_a_head_may_turn() -> None:
    definition = define_model(gguf("llama", rope__dimension_count=8))
    assert definition.program.ropes[0].rotary_dim == 8
    order = definition.sources["layers.0.attn.k"].transform.row_order()
    assert order[:HEAD_DIM] == [0, 2, 4, 6, 1, 3, 5, 7, *range(8, 16)]


def test_yarn_keeps_fast_pairs_and_stretches_slow_ones() -> None:
    plain = define_model(hf("llama", head_dim=64)).program.ropes[0]
    scaled = define_model(hf("llama", head_dim=64, rope_scaling=YARN)).program.ropes[0]
    ratios = [a / b for a, b in zip(plain.inv_freq, scaled.inv_freq, strict=True)]
    assert ratios == pytest.approx(sorted(ratios))
    assert ratios[0] == 1
    assert ratios[-1] == pytest.approx(4)
    assert any(1.01 < ratio < 3.99 for ratio in ratios)
    assert scaled.magnitude == pytest.approx(0.1 * math.log(4) + 1)


def test_yarn_reaches_as_far_as_its_factor() -> None:
    """Configs that switch it on often leave `max_position_embeddings` at the original context."""
    within = {**YARN, "original_max_position_embeddings": CONTEXT}
    assert define_model(hf("qwen2", rope_scaling=within)).program.max_positions == 4 * CONTEXT
    assert define_model(hf("qwen2", rope_scaling=YARN)).program.max_positions == CONTEXT
    header = gguf("qwen2", rope__scaling__type="yarn", rope__scaling__factor=4.0)
    assert define_model(header).program.max_positions == 4 * CONTEXT


def test_gguf_yarn_agrees_with_the_config() -> None:
    header = gguf(
        "qwen2",
        rope__scaling__type="yarn",
        rope__scaling__factor=4.0,
        rope__scaling__original_context_length=YARN["original_max_position_embeddings"],
    )
    assert define_model(header).program == define_model(hf("qwen2", rope_scaling=YARN)).program
    twice = replace(header, metadata={**header.metadata, "qwen2.rope.scaling.attn_factor": 2.0})
    ropes = [define_model(h).program.ropes[0] for h in (header, twice)]
    assert ropes[1].magnitude == pytest.approx(2 * ropes[0].magnitude)


def test_dynamic_scaling_changes_nothing_as_far_as_contexts_reach() -> None:
    scaled = define_model(hf("llama", rope_scaling={"rope_type": "dynamic", "factor": 4.0})).program
    assert scaled == define_model(hf("llama")).program


@pytest.mark.parametrize(("context", "key"), [(None, "long"), (257, "long"), (256, "short"), (10, "short")])
def test_longrope_chooses_once_by_the_context_of_the_start(context: int | None, key: str) -> None:
    """So that no sequence sees other rotations when it grows, and none is told by its neighbours' length."""
    short, long = [1.0 + i / 8 for i in range(8)], [2.0 + i for i in range(8)]
    scaling = {"type": "longrope", "short_factor": short, "long_factor": long}
    config = replace(hf("phi3", rope_scaling=scaling, original_max_position_embeddings=256), context=context)
    file = replace(
        gguf("phi3", rope__scaling__original_context_length=256, rope__scaling__attn_factor=math.sqrt(1.25)),
        short_rope_factors=tuple(short),
        long_rope_factors=tuple(long),
        context=context,
    )
    chosen = {"short": short, "long": long}[key]
    for header in (config, file):
        rope = define_model(header).program.ropes[0]
        assert rope.inv_freq == pytest.approx([10000.0 ** (-i / 8) / chosen[i] for i in range(8)])
        assert rope.magnitude == pytest.approx(math.sqrt(1 + math.log(4) / math.log(256)))


def test_longrope_needs_a_divisor_for_each_pair() -> None:
    scaling = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [1.0] * 7}
    with pytest.raises(ModelFileError, match=r"long_factor=.* holds 7 values, but 16 rotary dimensions need 8"):
        define_model(hf("phi3", rope_scaling=scaling, original_max_position_embeddings=256))
    with pytest.raises(ModelFileError, match="lacks long_factor"):
        define_model(hf("phi3", rope_scaling={"type": "su"}, original_max_position_embeddings=256))


def test_a_part_of_a_head_must_be_pairs() -> None:
    assert define_model(hf("phi3", partial_rotary_factor=0.5)).program.ropes[0].rotary_dim == HEAD_DIM // 2
    with pytest.raises(UnsupportedModelError, match=r"partial_rotary_factor=0\.2 of heads of 16 are 3 dimensions"):
        define_model(hf("phi3", partial_rotary_factor=0.2))


SCALINGS: list[dict[str, object] | None] = [
    None,
    LLAMA3,
    {"rope_type": "linear", "factor": 3.0},
    YARN,
    {**YARN, "beta_fast": 20.0, "beta_slow": 2.0, "truncate": False},
    {**YARN, "attention_factor": 1.7},
    {**YARN, "mscale": 0.7, "mscale_all_dim": 0.3},
    {"rope_type": "dynamic", "factor": 3.0},
]


@pytest.mark.parametrize("scaling", SCALINGS)
def test_frequencies_agree_with_transformers(scaling: dict[str, object] | None) -> None:
    pytest.importorskip("torch")
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    header = hf("llama", rope_scaling=scaling, head_dim=64)
    kept = {key: value for key, value in header.metadata.items() if key not in ("architectures", "rope_scaling")}
    config = llama.LlamaConfig(**kept, rope_scaling=None if scaling is None else dict(scaling))
    reference = llama.LlamaRotaryEmbedding(config)
    rope = define_model(header).program.ropes[0]
    assert rope.inv_freq == pytest.approx(reference.inv_freq.tolist(), rel=1e-6)
    assert rope.magnitude == pytest.approx(reference.attention_scaling)
