"""`doctor --bench` without the command line: which model is taken, and what is reported of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from octavo.bench import shares
from octavo.bench.bounds import Bound, Limit
from octavo.bench.shares import MachineShares, StepShare, as_text, load_any, measure_steps
from octavo.bench.steps import StepCase
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from octavo.hub.store import KnownModel
from octavo.platform.peaks import Peaks

PEAKS = Peaks(threads=1, isa="portable", read_bytes_per_s=20e9, int8_ops_per_s=300e9, float_ops_per_s=100e9)


def report(load: float = 0.1) -> MachineShares:
    step = StepShare("decode, 1 request", 0.0047, 212.8, Bound(0.0029, Limit.MEMORY), 0.61)
    return MachineShares("tiny", PEAKS, load, 2, (step,))


def test_a_line_tells_time_rate_and_share_of_the_limit() -> None:
    lines = as_text(report())
    assert lines[0] == "tiny, 1 threads, kernel path portable"
    assert lines[1].startswith("this machine reads 20.0 GB/s and does 300 G operations on bytes or 100 G on floats")
    assert lines[2] == "decode, 1 request: 4.7 ms, 213 tokens/s, 61 % of what memory allows"


def test_busy_is_more_than_half_a_process_per_core() -> None:
    assert not report(load=1.0).busy
    assert report(load=1.1).busy


def test_steps_of_a_tiny_model(tmp_path: Path) -> None:
    name, program, weights = load_any(str(write_tiny_model(tmp_path / "tiny.gguf")))
    assert name.endswith("tiny.gguf")
    cases = {"decode": StepCase(2, 1, 20), "prefill": StepCase(1, 8, 8)}
    measured = measure_steps(program, weights, PEAKS, cases, seconds=0.01)
    assert [step.case for step in measured] == ["decode", "prefill"]
    for step, case in zip(measured, cases.values(), strict=True):
        assert step.tokens_per_s == pytest.approx(case.total_tokens / step.seconds)
        assert step.share == pytest.approx(step.bound.seconds / step.seconds)


def test_an_empty_cache_leaves_the_synthetic_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "known_models", list)
    monkeypatch.setattr(shares, "SYNTHETIC", TinyModel())
    name, program, _ = load_any(None)
    assert name == "a synthetic model"
    assert program.vocab_size == TinyModel().vocab_size


@pytest.mark.parametrize("cached", [["other"], ["other", shares.DEFAULT_MODEL]])
def test_the_default_model_is_taken_if_cached_else_any_that_is(
    cached: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_tiny_model(tmp_path / "tiny.gguf")
    known = KnownModel(alias="", description="", sources=(), size_bytes=1, licence="", cached=True)
    absent = replace(known, alias="absent", cached=False)
    monkeypatch.setattr(shares, "known_models", lambda: [absent, *(replace(known, alias=name) for name in cached)])
    resolved: list[str] = []
    resolve = shares.resolve

    def resolve_alias(name: str, **options: object) -> object:
        resolved.append(name)
        return resolve(str(file))

    monkeypatch.setattr(shares, "resolve", resolve_alias)
    assert load_any(None)[0] == cached[-1]
    assert resolved == [cached[-1]]
