"""docs/bug_reports.md: every report and every check has a test that pytest collects, or the reason for none."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "bug_reports.md").read_text()
REPORTS = [
    *(1, 2, 4, 7, 11, 12, 13, 14, 17, 18, 21, 23, 25, 26, 27, 29, 30, 31, 35, 38, 39, 42, 45, 46, 48, 52, 53, 55, 56),
    *(57, 60, 61, 62, 65, 67, 68, 71, 74, 77, 78, 80, 81, 82, 84, 89, 90, 91, 93, 98, 99, 101, 103, 104, 108, 110),
    *(111, 112, 114, 117, 118, 119, 123, 125, 126, 127, 130, 132, 135, 136, 138, 140, 142, 143, 145, 148, 150, 151),
    *(155, 156, 159, 161, 162, 166, 168, 171, 173, 176, 178, 179, 181, 182, 185, 188, 189, 190, 192, 193, 196, 197),
]
"""Numbers of the reports; there are gaps between them."""
CHECKS = range(1, 39)


def rows(page: str) -> dict[str, list[str]]:
    """Id -> the other cells of its row."""
    found: dict[str, list[str]] = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
        if re.fullmatch(r"[BD]\d+", cells[0]):
            assert cells[0] not in found, f"{cells[0]} stands there twice"
            found[cells[0]] = cells[1:]
    return found


ROWS = rows(PAGE)


@cache
def collected(file: str) -> frozenset[str]:
    """Names of the test functions of a file that pytest collects: at its top level, with their body."""
    path = ROOT / file
    if not (path.name.startswith("test_") and path.is_file() and path.is_relative_to(ROOT / "tests")):
        return frozenset()
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return frozenset(node.name for node in functions if node.name.startswith("test_") and is_run(node))


def is_run(function: ast.FunctionDef) -> bool:
    """It is neither skipped whatever the machine, nor allowed to fail."""
    return not any(
        re.search(r"mark\.(skip|xfail)\b(?!if)", ast.unparse(decorator)) for decorator in function.decorator_list
    )


def problems(cells: list[str], columns: int) -> list[str]:
    """What is wrong with a row."""
    if len(cells) != columns:
        return [f"has {len(cells)} cells after its id"]
    *told, tests, remark = cells
    wrong = [f"{cell!r} is no phrase" for cell in told if not cell]
    if not tests and not remark:
        wrong.append("has neither a test nor a reason")
    for test in tests.split():
        file, _, name = test.partition("::")
        if name not in collected(file):
            wrong.append(f"{test} is not collected")
    return wrong


def test_every_row_is_there() -> None:
    assert list(ROWS) == [*(f"B{number:03}" for number in REPORTS), *(f"D{number}" for number in CHECKS)]


@pytest.mark.parametrize("name", ROWS)
def test_a_row_names_tests_that_are_run_or_a_reason(name: str) -> None:
    assert problems(ROWS[name], 4 if name.startswith("B") else 3) == []


def test_most_rows_have_tests() -> None:
    assert sum(bool(cells[-2]) for cells in ROWS.values()) >= 123


@pytest.mark.parametrize(
    "cells",
    [
        ["x #1", "a fault", "", ""],
        ["x #1", "", "tests/test_bug_reports_page.py::test_every_row_is_there", ""],
        ["x #1", "a fault", "tests/test_bug_reports_page.py::test_that_there_is_not", ""],
        ["x #1", "a fault", "tests/test_bug_reports_page.py::rows", ""],
        ["x #1", "a fault", "tests/conftest.py::test_every_row_is_there", ""],
        ["x #1", "a fault", "tests/test_no_such_file.py::test_x", "why"],
        ["a fault", "tests/test_bug_reports_page.py::test_every_row_is_there", ""],
    ],
)
def test_a_row_that_is_wrong_is_seen(cells: list[str]) -> None:
    assert problems(cells, 4)


@pytest.mark.parametrize(
    ("decorator", "run"),
    [("@pytest.mark.skip(reason='x')", False), ("@pytest.mark.xfail", False), ("@pytest.mark.skipif(True)", True)],
)
def test_a_test_that_is_never_run_holds_nothing(decorator: str, run: bool) -> None:
    (function,) = ast.parse(f"{decorator}\ndef test_x(): ...").body
    assert isinstance(function, ast.FunctionDef)
    assert is_run(function) is run
