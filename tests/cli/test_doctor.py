"""`octavo doctor --bench` as users start it."""

import json
import re

import pytest

from octavo import _native
from octavo.bench.bounds import Bound, Limit
from octavo.bench.op_shares import OpShare
from octavo.bench.shares import CASES, MachineShares, StepShare
from octavo.cli.doctor import print_shares
from octavo.platform.peaks import Peaks
from tests.cli.test_main import octavo


def test_the_kernel_path_is_told() -> None:
    findings = json.loads(octavo("doctor", "--port", "0", "--json").stdout)
    (native,) = [finding for finding in findings if finding["subject"] == "native"]
    assert f"kernel path {_native.resolve_isa('auto')}" in native["fact"]
    assert all(isa in native["fact"] for isa in _native.available_isas())


def test_bench_measures_a_model_and_says_that_quiet_matters(tiny_model: str) -> None:
    done = octavo("doctor", "--port", "0", "--bench", "--model", tiny_model, "--json")
    assert done.returncode == 0, done.stderr
    assert "quiet machine" in done.stderr
    report = json.loads(done.stdout)
    assert {finding["subject"] for finding in report["findings"]} >= {"native", "cores"}
    bench = report["bench"]
    assert bench["peaks"]["read_bytes_per_s"] > 0
    assert [step["case"] for step in bench["steps"]] == list(CASES)
    for step in bench["steps"]:
        assert step["bound"]["limit"] in ("memory", "arithmetic")
        assert step["seconds"] > 0
        assert step["share"] > 0
        assert {"linear q+k+v", "attention", "linear embed"} <= {op["op"] for op in step["ops"]}
        assert all(op["seconds"] > 0 and op["ratio"] >= 0 for op in step["ops"])


def test_figures_of_a_busy_machine_come_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    op = OpShare("attention", 30, 1, 0.0008, 1.0, Bound(0.0002, Limit.MEMORY), 0.25)
    step = StepShare("decode, 1 request", 0.0047, 212.8, Bound(0.0029, Limit.MEMORY), 0.61, (op,))
    peaks = Peaks(threads=2, isa="avx2", read_bytes_per_s=2e10, int8_ops_per_s=3e11, float_ops_per_s=1e11)
    for load, warned in ((0.2, False), (3.0, True)):
        print_shares(MachineShares("tiny", peaks, load, 2, (step,)))
        lines = capsys.readouterr().out.splitlines()
        assert "ok    bench      decode, 1 request: 4.7 ms, 213 tokens/s, 61 % of what memory allows" in lines
        table = lines.index("decode, 1 request, by op:")
        assert lines[table + 2].split() == ["attention", "30", "1", "0.800", "100.0", "%", "0.200", "25", "%", "memory"]
        assert any(line.startswith("warn  bench      load 3.0 on 2 cores") for line in lines) == warned


def test_what_a_model_takes_of_memory(tiny_model: str) -> None:
    done = octavo("doctor", "--port", "0", "--model", tiny_model, "--max-memory", "2GiB", "--json")
    told = next(finding for finding in json.loads(done.stdout) if finding["subject"] == tiny_model)
    assert told["verdict"] == "ok"
    assert re.match(
        r"at most [\d.]+ [MG]B of memory \(2\.1 GB max_memory\): process \d+ MB, weights \d+ MB, step", told["fact"]
    )
    done = octavo("doctor", "--port", "0", "--model", tiny_model, "--max-memory", "1MB", "--json")
    assert done.returncode == 1
    assert "1 MB max_memory allows, and without KV blocks the engine takes process" in done.stdout


def test_a_limit_without_a_model_is_a_mistake() -> None:
    needs_model = "is for one model's engine: name it, as in --model smollm2-135m"
    no_size = "must be a size such as 8GiB, or a share such as 80%"
    for size, problem in (("2GiB", needs_model), ("abc", no_size)):
        done = octavo("doctor", "--max-memory", size)
        assert (done.returncode, done.stderr) == (2, f"octavo: --max-memory='{size}': {problem}\n")
