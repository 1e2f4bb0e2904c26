"""Number formats of weights: bits, scales included, and what the linears multiply with."""

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.errors import ConfigError


@dataclass(frozen=True)
class WeightFormat:
    """How weights are stored."""

    name: str
    bits_per_weight: float
    operands: tuple[str, ...]
    """Number formats that products are formed in, the preferred one first: a device takes the first that it has."""

    @property
    def bytes_per_weight(self) -> float:
        return self.bits_per_weight / 8


_HALF = ("bf16", "fp32")
_PACKED = ("bf16", "int8", "fp32")
"""Weights of less than 8 bits are widened: to 16 bits where there is a peak for them, else products are of bytes."""
FORMATS = {
    each.name: each
    for each in (
        WeightFormat("fp32", 32, ("fp32",)),
        WeightFormat("bf16", 16, _HALF),
        WeightFormat("fp16", 16, _HALF),
        WeightFormat("fp8", 8, ("fp8", "bf16", "fp32")),
        WeightFormat("int8", 8, ("int8", "bf16", "fp32")),
        WeightFormat("int4", 4, _PACKED),
    )
}
_OF_CONFIG = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_OF_QUANTISED = {"fp8": "fp8", "gptq": "int4", "awq": "int4"}


def format_named(name: str) -> WeightFormat:
    """A format by its name.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in FORMATS:
        raise ConfigError("weights", name, f"is no number format; choose one of {', '.join(FORMATS)}")
    return FORMATS[name]


def format_of_config(config: Mapping[str, object]) -> WeightFormat:
    """The format that a config.json speaks of; 16 bits where it does not.

    Raises:
        ConfigError: it is quantised in a way whose bits are not known here.
    """
    quantised = config.get("quantization_config")
    if isinstance(quantised, Mapping):
        method, bits = quantised.get("quant_method"), quantised.get("bits", 4)
        if method not in _OF_QUANTISED or (method in ("gptq", "awq") and bits != 4):
            raise ConfigError(
                "quantization_config", f"{method}, {bits} bits", f"say its bits: --weights {'|'.join(FORMATS)}"
            )
        return FORMATS[_OF_QUANTISED[str(method)]]
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16").removeprefix("torch.")
    return FORMATS[_OF_CONFIG.get(dtype, "bf16")]


def stored_format(num_bytes: int, num_parameters: int, *, is_integer: bool) -> WeightFormat:
    """The mean of a file that mixes formats.

    Args:
        is_integer: most bytes hold integers, so products are of bytes where a device has a peak for them.
    """
    operands = ("int8", "bf16", "fp32") if is_integer else _HALF
    return WeightFormat("as stored", 8 * num_bytes / num_parameters, operands)
