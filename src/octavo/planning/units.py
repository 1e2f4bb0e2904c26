"""Units: figures are computed in bytes, seconds, operations and counts, and divided once, when they are shown."""

UNITS: dict[str, float] = {
    "bytes": 1,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "GB/s": 1e9,
    "s": 1,
    "ms": 1e-3,
    "us": 1e-6,
    "TFLOP": 1e12,
    "TFLOP/s": 1e12,
    "FLOP/B": 1,
    "tok/s": 1,
    "req/s": 1,
    "%": 0.01,
    "x": 1,
}
"""Unit -> its size in the base unit. Powers of 1000 have SI names, powers of 1024 have IEC names; nothing else is a
megabyte."""


def in_unit(value: float, unit: str) -> float:
    """A figure in base units, in another one. Units that are not listed are counts: `blocks`, `tokens`."""
    return value / UNITS.get(unit, 1)
