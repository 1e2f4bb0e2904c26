"""`doctor --bench` without the command line: which model is taken, and what is reported of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from octavo.bench import shares
from octavo.bench.bounds import Bound, Limit, Work, step_work
from octavo.bench.op_shares import OpShare, as_table
from octavo.bench.shares import MachineShares, StepShare, as_text, load_any, time_steps
from octavo.bench.stage_work import stage_work
from octavo.bench.steps import StepCase
from octavo.execution.loader import open_checkpoint
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from octavo.execution.quant import TensorType
from octavo.execution.weights import load_model
from octavo.hub.store import KnownModel
from octavo.platform.peaks import Peaks

PEAKS = Peaks(threads=1, isa="portable", read_bytes_per_s=20e9, int8_ops_per_s=300e9, float_ops_per_s=100e9)


AT_THE_END = {"SelectRows+RmsNorm", "linear embed"}


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
    timed = time_steps(program, weights, cases, seconds=0.01, threads=1, isa="portable")
    measured = timed.shares(PEAKS)
    assert [step.case for step in measured] == ["decode", "prefill"]
    for step, case in zip(measured, cases.values(), strict=True):
        assert step.tokens_per_s == pytest.approx(case.total_tokens / step.seconds)
        assert step.share == pytest.approx(step.bound.seconds / step.seconds)
        assert sum(op.step_share for op in step.ops) == pytest.approx(1)
        assert [op.op for op in step.ops if op.op.startswith("linear")] == [
            "linear q+k+v", "linear out", "linear gate+up", "linear down", "linear embed",
        ]  # fmt: skip
        for op in step.ops:
            assert op.ratio == pytest.approx(op.bound.seconds / op.seconds)
            assert op.rows == (case.sequences if op.op in AT_THE_END else case.total_tokens)
            assert op.count == (1 if op.op in AT_THE_END or op.op.startswith("Embed") else op.count)


@pytest.mark.parametrize("tensor_type", [TensorType.F32, TensorType.Q8_0])
def test_the_work_of_stages_adds_up_to_that_of_the_step(tmp_path: Path, tensor_type: TensorType) -> None:
    """Whatever lowering folds, joins and adds."""
    model = replace(TinyModel(), tensor_type=tensor_type)
    program, weights = load_model(open_checkpoint([write_tiny_model(tmp_path / "tiny.gguf", model)]))
    case = StepCase(3, 4, 20)
    timed = time_steps(program, weights, {"case": case}, 0, threads=1, isa="portable")
    works = stage_work(timed.sections, program, case.shape, weights)
    assert sum((one.work for one in works.values()), Work()) == step_work(program, case.shape, weights)
    assert works["attention"].count == 2 and works["attention"].dim == "tokens"
    assert works["linear embed"].dim == "rows"


def test_a_table_of_ops() -> None:
    ops = (
        OpShare("linear q+k+v", 30, 1, 0.0012, 0.6, Bound(0.0009, Limit.MEMORY), 0.75),
        OpShare("attention", 30, 16, 0.0008, 0.4, Bound(0.0002, Limit.ARITHMETIC), 0.25),
    )
    assert as_table(ops) == [
        "op             x  rows     ms  of step  bound, ms  ratio    bound by",
        "linear q+k+v  30     1  1.200   60.0 %      0.900   75 %      memory",
        "attention     30    16  0.800   40.0 %      0.200   25 %  arithmetic",
    ]


def test_of_two_measurements_the_higher_peaks_count() -> None:
    other = replace(PEAKS, read_bytes_per_s=30e9, int8_ops_per_s=1e9)
    assert PEAKS.best_of(other) == replace(PEAKS, read_bytes_per_s=30e9)


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
