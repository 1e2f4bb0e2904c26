"""A real trace, replayed against `octavo serve` with a real model. The traces are not part of this repository."""

import json
from pathlib import Path

import pytest

from octavo.bench.load.datasets.trace import BLOCK_TOKENS, read_trace
from tests.bench.load.test_command import octavo
from tests.bench.load.test_datasets import TRACES
from tests.equality.http import serving
from tests.real_models import model_path

MOST, COUNT = 1000, 6
"""Tokens of a prompt, and how many there are: seconds of work for a small model."""


@pytest.mark.slow
def test_mooncakes_conversations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of these rows begin with the block of hash id 0. Sent one at a time, those after the first find it."""
    trace = TRACES / "mooncake_conversation_trace.jsonl"
    if not trace.exists():
        pytest.skip(f"no public traces in {TRACES}; name their folder with OCTAVO_TRACES")
    model, out = str(model_path("smollm2-135m")), tmp_path / "out.json"
    rows = [row for row in read_trace(str(trace)) if row.input_len <= MOST][:COUNT]
    assert [row.hash_ids[0] for row in rows] == [0] * COUNT
    what = (
        "--dataset",
        "trace",
        "--dataset-path",
        str(trace),
        "--max-input-len",
        str(MOST),
        "--num-prompts",
        str(COUNT),
    )
    when = ("--time-scale", "0.01", "--max-concurrency", "1")
    how = ("--tokenizer", model, "--output-len", "4", "--ignore-eos", "--json", str(out))
    with serving(model, {"max_model_len": 1280, "threads": 2}, tmp_path) as url:
        done = octavo(capsys, monkeypatch, "bench", "serve", "--url", url, *what, *when, *how)
    assert done.code == 0, done.out + done.err
    assert f": {COUNT} completed, 0 rejected, 0 errored, 0 aborted\n" in done.out
    assert f"{COUNT}/{COUNT}" in done.err
    figures = json.loads(out.read_text())["run"]
    assert figures["prompt_tokens"] == figures["asked_prompt_tokens"] == sum(row.input_len for row in rows)
    assert figures["output_tokens"] == 4 * COUNT
    assert BLOCK_TOKENS * (COUNT - 1) <= figures["cached_tokens"] < (BLOCK_TOKENS + 16) * (COUNT - 1)
    assert figures["window"]["end_s"] > (rows[-1].at_s - rows[0].at_s) * 0.01
