"""Rotary frequencies and the scalings that model files ask for.

Frequencies are computed in double precision and rounded to float32 once: the models were trained with float32 tables.
"""

import math
import struct
from collections.abc import Sequence

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.model.fields import Fields
from octavo.model.program import RopeSpec

DEFAULT_BASE = 10000.0
_MAX_FACTOR = 1e6


def rope_spec(rotary_dim: int, base: float, divisors: Sequence[float] | float = 1.0) -> RopeSpec:
    """`inv_freq[i] = base ** (-2 i / rotary_dim) / divisors[i]` (Su et al. 2021, and linear position interpolation)."""
    half = rotary_dim // 2
    by = [divisors] * half if isinstance(divisors, int | float) else divisors
    return RopeSpec(rotary_dim, tuple(_float32(base ** (-2 * i / rotary_dim) / by[i]) for i in range(half)))


def llama3_divisors(rotary_dim: int, base: float, scaling: Fields) -> list[float]:
    """Divisors of Llama 3.1's scaling: long waves by `factor`, short ones by 1, a ramp between.

    With n = original context / wavelength, the number of turns within the context the model was first trained for,
    frequencies with n < low_freq_factor are divided by `factor`, those with n > high_freq_factor stay.
    """
    factor = scaling.number("factor", 1, _MAX_FACTOR)
    low = scaling.number("low_freq_factor", 1e-6, _MAX_FACTOR)
    high = scaling.number("high_freq_factor", 1e-6, _MAX_FACTOR)
    context = scaling.integer("original_max_position_embeddings", 1, 1 << 30)
    if not low < high:
        raise scaling.error("high_freq_factor", f"must exceed low_freq_factor={low}")
    divisors = []
    for i in range(rotary_dim // 2):
        turns = context * base ** (-2 * i / rotary_dim) / (2 * math.pi)
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        divisors.append(1 / (kept + (1 - kept) / factor))
    return divisors


def gguf_rope(fields: Fields, head_dim: int, factors: tuple[float, ...] | None) -> RopeSpec:
    """The rotary embedding that a GGUF file's metadata and `rope_freqs.weight` describe.

    Raises:
        UnsupportedModelError: for YaRN and other scalings, naming the key.
        ModelFileError: for values out of reason.
    """
    rotary_dim = fields.integer("rope.dimension_count", 2, head_dim, default=head_dim)
    if rotary_dim % 2:
        raise fields.error("rope.dimension_count", "must be even")
    fields.accept("rope.scaling.type", "none", "linear")
    fields.accept("rope.scaling.attn_factor", 1.0)
    fields.accept("rope.scaling.yarn_log_multiplier", 0.0)
    factor = 1.0
    if fields.values.get(fields.prefix + "rope.scaling.type") != "none":
        # Older files spell the factor of linear scaling `rope.scale_linear`; 0 means "not set" in both.
        old = fields.number("rope.scale_linear", 0, _MAX_FACTOR, default=0.0)
        factor = fields.number("rope.scaling.factor", 0, _MAX_FACTOR, default=old) or 1.0
    if factors is not None and len(factors) != rotary_dim // 2:
        raise ModelFileError(
            f"{fields.path}: rope_freqs.weight holds {len(factors)} values, but {rotary_dim} rotary dimensions need"
            f" {rotary_dim // 2}"
        )
    if factors is not None and not all(0 < f <= _MAX_FACTOR for f in factors):
        raise ModelFileError(f"{fields.path}: rope_freqs.weight holds a value outside (0, {_MAX_FACTOR:g}]")
    base = fields.number("rope.freq_base", 1, 1e12, default=DEFAULT_BASE)
    return rope_spec(rotary_dim, base, [factor * f for f in factors or (1.0,) * (rotary_dim // 2)])


def hf_rope(fields: Fields, head_dim: int, default_base: float = DEFAULT_BASE) -> RopeSpec:
    """The rotary embedding that config.json describes: `rope_theta` with `rope_scaling`, or `rope_parameters`.

    Raises as `gguf_rope`.
    """
    fields.accept("partial_rotary_factor", 1, 1.0)
    scaling = fields.nested("rope_parameters" if fields.has("rope_parameters") else "rope_scaling")
    base = fields.number("rope_theta", 1, 1e12, default=default_base)
    return scaled_rope(scaling, head_dim, base)


def scaled_rope(scaling: Fields, head_dim: int, default_base: float) -> RopeSpec:
    """One rotary embedding from its own object in config.json (its `rope_theta`, if any, wins over `default_base`)."""
    scaling.accept("partial_rotary_factor", 1, 1.0)
    base = scaling.number("rope_theta", 1, 1e12, default=default_base)
    kind = scaling.text("rope_type", default=scaling.text("type", default="default"))
    if kind == "default":
        return rope_spec(head_dim, base)
    if kind == "linear":
        return rope_spec(head_dim, base, scaling.number("factor", 1e-6, _MAX_FACTOR))
    if kind == "llama3":
        return rope_spec(head_dim, base, llama3_divisors(head_dim, base, scaling))
    raise UnsupportedModelError(
        f"{scaling.path}: rope_type={kind!r} is a rotary scaling that Octavo does not compute; it computes default,"
        " linear and llama3"
    )


def _float32(value: float) -> float:
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded
