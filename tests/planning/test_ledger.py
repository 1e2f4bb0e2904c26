"""All rows of the reference ledger, by the functions that a user calls."""

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.planning.units import UNITS, in_unit

from .conventions import KIB_THOUSAND_BYTES
from .rows import ROWS

REFERENCE: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "ledger" / "rows.json").read_text(encoding="utf-8")
)
REPRODUCED = [row for row in REFERENCE if row["status"] != "inconsistent" and row["tolerance"] is not None]


def in_unit_of(row: dict[str, Any], value: float) -> float:
    return value / KIB_THOUSAND_BYTES if row["unit"] == "KiB/1000" else in_unit(value, row["unit"])


def test_every_row_has_a_function_and_every_function_a_row() -> None:
    assert len(REFERENCE) == 148
    assert sorted(ROWS) == sorted(row["id"] for row in REFERENCE)


@pytest.mark.parametrize("row", REFERENCE, ids=lambda row: row["id"])
def test_value(row: dict[str, Any]) -> None:
    assert in_unit_of(row, ROWS[row["id"]]()) == pytest.approx(row["value"], rel=1e-9)


@pytest.mark.parametrize("row", REPRODUCED, ids=lambda row: row["id"])
def test_what_was_printed(row: dict[str, Any]) -> None:
    assert in_unit_of(row, ROWS[row["id"]]()) == pytest.approx(row["printed"], rel=1e-9, abs=row["tolerance"] + 1e-9)


def test_units_are_si_or_iec_and_never_mixed() -> None:
    named = {row["unit"] for row in REFERENCE if row["unit"] in UNITS}
    assert {"kB", "MB", "GB", "KiB", "MiB", "GiB"} <= named
    assert "KiB/1000" not in UNITS
