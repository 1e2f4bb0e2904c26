"""The benchmark of the front end runs on a tiny model and writes both its tables."""

import json
from pathlib import Path

import pytest

from octavo.execution.loader.tiny import write_tiny_model
from tests.bench.test_scripts import run


@pytest.mark.slow
def test_the_front_end_is_measured(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf")
    out = tmp_path / "out.json"
    sizes = ("--rounds", "1", "--seconds", "0.5", "--streams", "8", "--tokens", "8", "--processes", "1")
    told = run("front_end.py", "--model", str(model), *sizes, "--json", str(out))
    assert "| a text of 1 MiB | 1 | " in told and "| a new schema of 5,000 | 1 | " in told
    (figures,) = json.loads(out.read_text())["rounds"]
    assert figures["cost | 1"]["cpu_us_per_token"] > 0
    assert 0 < figures["alone | 1"]["itl_p50_ms"] <= figures["alone | 1"]["itl_max_ms"]
