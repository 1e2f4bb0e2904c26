"""That types are checked wherever an interface is used outside of the package and its tests."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_script_is_left_out() -> None:
    """A benchmark that nothing checks is broken by the next change of what it calls, and nobody notices."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    checked = {path for pattern in patterns for path in ROOT.glob(pattern)}
    scripts = [path for folder in ("benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")]
    scripts += [path for path in (ROOT / "scripts").iterdir() if path.read_bytes().startswith(b"#!/usr/bin/env python")]
    assert len(scripts) > 40
    assert sorted(str(path.relative_to(ROOT)) for path in set(scripts) - checked) == []
    assert ROOT / "src" / "octavo" in checked
