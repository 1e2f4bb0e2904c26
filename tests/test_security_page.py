"""docs/security.md: every threat names the test that holds it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text()


def rows() -> list[list[str]]:
    table = PAGE.partition("| who | threat |")[2]
    lines = [line for line in table.splitlines()[2:] if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_named_test_exists() -> None:
    named = [row[-1].strip(" |") for row in rows()]
    assert len(named) > 40
    for test in named:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text()
        assert re.search(rf"^def {name}\(", text, re.MULTILINE), test


def test_every_line_is_whole() -> None:
    for row in rows():
        assert len(row) == 4, row
        assert row[0] in {"C", "P", "M", "T", "N", "L"}, row


def test_the_advisories_are_cases() -> None:
    known = (
        *("CVE-2025-59425", "CVE-2026-24779", "CVE-2025-6242", "CVE-2026-33626", "CVE-2026-22778", "CVE-2026-5497"),
        *("CVE-2026-5760", "CVE-2026-22807", "CVE-2026-7301", "CVE-2026-7304", "CVE-2026-3059", "CVE-2026-3060"),
        *("CVE-2026-7302", "CVE-2024-37032", "CVE-2026-7482", "CVE-2024-21802"),
    )
    assert [name for name in known if name not in PAGE] == []
