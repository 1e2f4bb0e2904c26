"""A figure with its unit, and the sections of a report."""

from dataclasses import dataclass

from octavo.planning.units import UNITS, in_unit


@dataclass(frozen=True)
class Figure:
    """One line of the ledger."""

    key: str
    """Names the quantity and its base unit: `kv_bytes_per_token`."""
    value: float
    """In base units."""
    unit: str
    """What people see it in."""
    remark: str = ""

    def shown(self) -> str:
        """For people: the value in its unit, whole numbers with separators, others with four digits."""
        value = in_unit(self.value, self.unit)
        if self.unit not in UNITS and value == int(value):
            return f"{value:,.0f} {self.unit}"
        digits = f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
        return f"{digits} {self.unit}"


@dataclass(frozen=True)
class Section:
    """Figures that belong together."""

    title: str
    figures: tuple[Figure, ...]
