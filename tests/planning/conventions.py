"""How the printed figures were rounded on the way, and how their units were mixed. The product does neither."""

from math import floor

KIB_THOUSAND_BYTES = 1024 * 1000
"""A "MB" made of KiB by dividing them by 1000."""


def rounded(value: float, digits: int, unit: float = 1) -> float:
    """A figure as it was printed in some unit, taken up again from there."""
    return round(value / unit, digits) * unit


def whole_billions(value: float) -> float:
    """What a model's name says of its parameters."""
    return floor(value / 1e9) * 1e9


def as_kib_thousands(num_bytes: float) -> float:
    """KiB over 1000, called MB, taken up again as MB."""
    return num_bytes / KIB_THOUSAND_BYTES * 1e6


def as_mib_called_mb(num_bytes: float) -> float:
    """MiB, called MB, taken up again as MB."""
    return num_bytes / 2**20 * 1e6
