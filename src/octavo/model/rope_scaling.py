"""Scalings of rotary embeddings: what stretches a model beyond the context it was first trained for.

None of them looks at the length of a sequence: a token's rotation must not depend on what comes after it. Scalings that
are defined by the current length are fixed at start, as their functions say.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from octavo.errors import UnsupportedModelError
from octavo.model.fields import Fields

MAX_FACTOR = 1e6
_MAX_POSITIONS = 1 << 30


@dataclass(frozen=True)
class Turning:
    """What a rotary embedding is without a scaling, and how far it will be used."""

    rotary_dim: int
    base: float
    max_positions: int
    """Longest context that the checkpoint names."""
    context: int
    """Longest context of this start."""

    @property
    def half(self) -> int:
        """Pairs of a head that turn."""
        return self.rotary_dim // 2

    def turns(self, pair: int, positions: int) -> float:
        """Of a pair within so many positions."""
        frequency: float = self.base ** (-2 * pair / self.rotary_dim)
        return positions * frequency / (2 * math.pi)


@dataclass(frozen=True)
class Scaling:
    """What a scaling does: each pair's frequency is divided, cosines and sines are multiplied."""

    divisors: Sequence[float]
    magnitude: float = 1.0


def no_scaling(turning: Turning) -> Scaling:
    """All as it is."""
    return Scaling((1.0,) * turning.half)


def llama3_divisors(turning: Turning, scaling: Fields) -> list[float]:
    """Divisors of Llama 3.1's scaling: long waves by `factor`, short ones by 1, a ramp between.

    With n the number of turns within the context the model was first trained for, frequencies with n < low_freq_factor
    are divided by `factor`, those with n > high_freq_factor stay.
    """
    factor = scaling.number("factor", 1, MAX_FACTOR)
    low = scaling.number("low_freq_factor", 1e-6, MAX_FACTOR)
    high = scaling.number("high_freq_factor", 1e-6, MAX_FACTOR)
    context = scaling.integer("original_max_position_embeddings", 1, _MAX_POSITIONS)
    if not low < high:
        raise scaling.error("high_freq_factor", f"must exceed low_freq_factor={low}")
    divisors = []
    for pair in range(turning.half):
        kept = min(max((turning.turns(pair, context) - low) / (high - low), 0.0), 1.0)
        divisors.append(1 / (kept + (1 - kept) / factor))
    return divisors


@dataclass(frozen=True)
class Yarn:
    """YaRN (Peng et al. 2023, arXiv:2309.00071): pairs that turn less than `slow` times within the original context are
    divided by `factor`, those that turn more than `fast` times stay, a ramp over the pairs between."""

    factor: float
    original: int
    """The context the model was first trained for."""
    fast: float = 32.0
    slow: float = 1.0
    truncate: bool = True
    """The ramp begins and ends at whole pairs."""

    def divisors(self, turning: Turning) -> list[float]:
        """Of each pair."""
        low, high = self._pair_with(turning, self.fast), self._pair_with(turning, self.slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0.0), min(high, turning.rotary_dim - 1.0)
        width = high - low or 0.001
        stretched = (min(max((pair - low) / width, 0.0), 1.0) for pair in range(turning.half))
        return [1 / (share / self.factor + 1 - share) for share in stretched]

    def _pair_with(self, turning: Turning, turns: float) -> float:
        """The pair, as a real number, that turns so often within the original context."""
        ratio = self.original / (turns * 2 * math.pi)
        return turning.rotary_dim * math.log(ratio) / (2 * math.log(turning.base))


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """YaRN's attention factor: what it recommends for cosines and sines of a context so many times longer."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1


def longrope_magnitude(factor: float, original: int) -> float:
    """LongRoPE's attention factor (Ding et al. 2024, arXiv:2402.13753)."""
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))


def _linear(turning: Turning, scaling: Fields) -> Scaling:
    """Position interpolation (Chen et al. 2023)."""
    return Scaling((scaling.number("factor", 1e-6, MAX_FACTOR),) * turning.half)


def _dynamic(turning: Turning, scaling: Fields) -> Scaling:
    """Dynamic NTK stretches once a sequence is longer than `max_position_embeddings`, and then anew with every token:
    K that are cached would be those of another model. Up to there, which is as far as contexts reach here, it is no
    scaling at all."""
    scaling.number("factor", 1, MAX_FACTOR)
    return no_scaling(turning)


def _llama3(turning: Turning, scaling: Fields) -> Scaling:
    return Scaling(llama3_divisors(turning, scaling))


def _yarn(turning: Turning, scaling: Fields) -> Scaling:
    yarn = yarn_of(scaling, turning.max_positions)
    if scaling.has("attention_factor"):
        magnitude = scaling.number("attention_factor", 1e-6, MAX_FACTOR)
    else:
        weights = [scaling.number(key, 0, MAX_FACTOR, default=0.0) for key in ("mscale", "mscale_all_dim")]
        above, below = weights if all(weights) else (1.0, 0.0)
        magnitude = yarn_magnitude(yarn.factor, above) / yarn_magnitude(yarn.factor, below)
    return Scaling(yarn.divisors(turning), magnitude)


def yarn_of(scaling: Fields, max_positions: int) -> Yarn:
    """The numbers of YaRN in config.json."""
    original = _original(scaling, max_positions)
    return Yarn(
        factor=scaling.number("factor", 1e-6, MAX_FACTOR, default=max_positions / original),
        original=original,
        fast=scaling.number("beta_fast", 1e-6, MAX_FACTOR, default=32.0),
        slow=scaling.number("beta_slow", 1e-6, MAX_FACTOR, default=1.0),
        truncate=scaling.flag("truncate", default=True),
    )


def _longrope(turning: Turning, scaling: Fields) -> Scaling:
    """LongRoPE has two sets of divisors, for sequences within the original context and for longer ones. Which is used
    is decided once, by the longest context of this start: a sequence that grew past the original context would
    otherwise need all its cached K anew."""
    original = _original(scaling, turning.max_positions)
    key = "long_factor" if turning.context > original else "short_factor"
    divisors = checked_divisors(scaling, key, scaling.items(key), turning)
    factor = scaling.number("factor", 1e-6, MAX_FACTOR, default=turning.max_positions / original)
    magnitude = scaling.number("attention_factor", 1e-6, MAX_FACTOR, default=longrope_magnitude(factor, original))
    return Scaling(divisors, magnitude)


def _original(scaling: Fields, max_positions: int) -> int:
    return scaling.integer("original_max_position_embeddings", 2, _MAX_POSITIONS, default=max_positions)


def checked_divisors(fields: Fields, key: str, values: Sequence[object], turning: Turning) -> list[float]:
    """Divisors that stand in a file, one for each pair.

    Raises:
        ModelFileError: their number or one of them is absurd.
    """
    if len(values) != turning.half:
        problem = f"holds {len(values)} values, but {turning.rotary_dim} rotary dimensions need {turning.half}"
        raise fields.error(key, problem)
    numbers = [float(value) for value in values if isinstance(value, int | float) and 0 < value <= MAX_FACTOR]
    if len(numbers) != len(values):
        raise fields.error(key, f"holds a value outside (0, {MAX_FACTOR:g}]")
    return numbers


_SCALINGS: dict[str, Callable[[Turning, Fields], Scaling]] = {
    "default": lambda turning, scaling: no_scaling(turning),
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,
}
"""By the names of `rope_type`; `su` is an older one."""


def hf_scaling(turning: Turning, scaling: Fields) -> Scaling:
    """The scaling of an object of config.json.

    Raises:
        UnsupportedModelError: it is none that Octavo computes.
        ModelFileError: its numbers are missing or absurd.
    """
    kind = rope_type(scaling)
    if kind not in _SCALINGS:
        raise UnsupportedModelError(
            f"{scaling.path}: rope_type={kind!r} is a rotary scaling that Octavo does not compute; it computes"
            f" {', '.join(_SCALINGS)}"
        )
    return _SCALINGS[kind](turning, scaling)


def rope_type(scaling: Fields) -> str:
    """The name of a scaling, under its newer or its older key."""
    return scaling.text("rope_type", default=scaling.text("type", default="default"))
