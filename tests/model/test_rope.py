"""Rotary frequencies and their scalings."""

import math
from dataclasses import replace

import pytest

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader
from octavo.model.registry import define_model
from octavo.model.rope import llama3_divisors, rope_spec, scaled_rope
from tests.model.headers import HEAD_DIM, gguf, hf

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}


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
    divisors = llama3_divisors(64, 500000.0, Fields("", LLAMA3))
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
    divisors = llama3_divisors(HEAD_DIM, 10000.0, Fields("", LLAMA3))
    from_gguf = define_model(with_factors(gguf("llama"), *divisors)).program
    assert from_gguf == define_model(hf("llama", rope_scaling=LLAMA3)).program


def test_gguf_factors_are_checked() -> None:
    with pytest.raises(ModelFileError, match=r"rope_freqs\.weight holds 3 values"):
        define_model(with_factors(gguf("llama"), 1.0, 1.0, 1.0))
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ModelFileError, match=r"rope_freqs\.weight holds a value outside"):
            define_model(with_factors(gguf("llama"), *[1.0] * 7, bad))


def test_unknown_scalings_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedModelError, match=r"rope_type='yarn'.*default, linear and llama3"):
        scaled_rope(Fields("config.json: rope_scaling", {"rope_type": "yarn"}), 8, 1e4)


def test_part_of_a_head_may_turn() -> None:
    definition = define_model(gguf("llama", rope__dimension_count=8))
    assert definition.program.ropes[0].rotary_dim == 8
    order = definition.sources["layers.0.attn.k"].transform.row_order()
    assert order[:HEAD_DIM] == [0, 2, 4, 6, 1, 3, 5, 7, *range(8, 16)]


@pytest.mark.parametrize("scaling", [None, LLAMA3, {"rope_type": "linear", "factor": 3.0}])
def test_frequencies_agree_with_transformers(scaling: dict[str, object] | None) -> None:
    pytest.importorskip("torch")
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    header = hf("llama", rope_scaling=scaling, head_dim=64)
    kept = {key: value for key, value in header.metadata.items() if key not in ("architectures", "rope_scaling")}
    config = llama.LlamaConfig(**kept, rope_scaling=None if scaling is None else dict(scaling))
    reference = llama.LlamaRotaryEmbedding(config).inv_freq.tolist()
    assert define_model(header).program.ropes[0].inv_freq == pytest.approx(reference, rel=1e-6)
