"""The benchmark scripts: their arithmetic, and one quick run of each on a tiny model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.kv_dtypes import Answers, speed_table
from benchmarks.step_cost import as_markdown, by_kind, kind_of, python_share
from octavo.execution.loader.tiny import write_tiny_model

ROOT = Path(__file__).parents[2]


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, f"benchmarks/{script}", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        ("attention", "attention"),
        ("linear q+k+v", "linears"),
        ("linear embed", "logits"),
        ("linear lm_head", "logits"),
        ("RmsNorm+Quantize", "row ops"),
        ("block copies", "row ops"),
    ],
)
def test_stages_belong_to_kinds(stage: str, kind: str) -> None:
    assert kind_of(stage) == kind


def test_stages_are_added_up_by_kind() -> None:
    kinds = by_kind({"attention": 1.0, "linear q+k+v": 2.0, "linear o": 3.0, "Embed": 4.0})
    assert kinds == {"attention": 1.0, "linears": 5.0, "logits": 0.0, "row ops": 4.0}


def test_python_has_what_kernels_leave_of_a_served_step() -> None:
    assert python_share({"step": 9.0, "wire, core side": 1.0, "execute": 8.0}) == pytest.approx(0.2)


def test_ops_of_a_trace_are_added_up(tmp_path: Path) -> None:
    """Of ten steps one is disturbed, which moves nothing; prompts do not count."""
    events = []
    for i, prefill in enumerate([8, *[0] * 10]):
        slow = 50 if i == 3 else 1
        args = {"decode_rows": 2, "prefill_tokens": prefill}
        events.append(complete(f"step {i}", 1000 * i, 500 * slow, "core", args))
        events.append(complete("forward", 1000 * i + 1, 400 * slow, "core"))
        events += [complete("linear q", 1000 * i + 10 * j, 4 * slow, "op,model") for j in (1, 2)]
        events.append(complete("attention", 1000 * i + 30, 2 * slow, "op,model"))
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"traceEvents": events}))
    printed = run("trace_ops.py", str(trace), "--decode-rows", "2")
    assert printed.splitlines()[0].startswith("10 steps, undisturbed 0.50 ms: forward 0.40")
    assert [line.split() for line in printed.splitlines()[1:]] == [
        ["0.008", "ms", "80.0", "%", "linear", "q"],
        ["0.002", "ms", "20.0", "%", "attention"],
    ]
    with pytest.raises(subprocess.CalledProcessError) as other:
        run("trace_ops.py", str(trace), "--decode-rows", "16")
    assert "those that only decode have --decode-rows [2]" in other.value.stderr
    with pytest.raises(subprocess.CalledProcessError) as absent:
        run("trace_ops.py", str(tmp_path / "absent.json"))
    assert "absent.json is no trace of Octavo" in absent.value.stderr and "Traceback" not in absent.value.stderr


def complete(name: str, ts: int, dur: int, category: str, args: dict[str, int] | None = None) -> dict[str, object]:
    return {"ph": "X", "name": name, "cat": category, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args or {}}


def test_the_cost_of_a_profile_is_told(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf")
    printed = run("profile_cost.py", "--model", str(model), "--batch", "2", "--steps", "3", "--rounds", "2")
    assert printed.startswith("batch 2: x ") and "events per step" in printed


def test_the_cost_table_of_a_tiny_model(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf")
    out = tmp_path / "cost.json"
    printed = run(
        "step_cost.py", "--model", str(model), "--batch", "1", "3", "--context", "40", "--steps", "6",
        "--seconds", "0.1", "--threads", "1", "--json", str(out),
    )  # fmt: skip
    figures = json.loads(out.read_text())
    assert as_markdown(figures["tables"]) in printed
    assert [table["batch"] for table in figures["tables"]] == [1, 3]
    for table in figures["tables"]:
        parts = table["parts_s"]
        assert all(parts[name] > 0 for name in ("schedule", "prepare", "execute", "sample", "update", "to text"))
        assert parts["execute"] < parts["step"] < table["served_step_s"]
        assert all(seconds > 0 for seconds in table["kernels_s"].values())


def test_each_op_is_measured_against_its_bound(tmp_path: Path) -> None:
    out = tmp_path / "kernels.json"
    run(
        "kernels.py", "linears", "rows", "--models", "smollm2-135m", "--formats", "Q8_0", "--rows", "2",
        "--seconds", "0.01", "--threads", "1", "--json", str(out),
    )  # fmt: skip
    ops = json.loads(out.read_text())["ops"]
    names = [op["op"].removeprefix("smollm2-135m ") for op in ops]
    assert names == [
        "qkv 960 x 576 Q8_0",
        "o 576 x 576 Q8_0",
        "gate_up 3072 x 576 Q8_0",
        "down 576 x 1536 Q8_0",
        "logits 49152 x 576 Q8_0",
        "norm",
        "rope",
        "activation",
        "add",
        "norm + quantise",
    ]
    for op in ops:
        assert op["case"] == "2 rows"
        assert op["seconds"] > 0
        assert op["bound"]["seconds"] > 0
    assert ops[0]["work"] == {"int8_ops": 2 * 2 * 960 * 576, "float_ops": 0, "memory_bytes": 960 * 576 * 34 // 32}


def test_formats_of_kv_take_turns_on_a_tiny_model(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf")
    out = tmp_path / "kv"
    printed = run(
        "kv_dtypes.py", "--model", str(model), "--dtypes", "fp16", "int8", "--concurrent", "3", "--context", "40",
        "--steps", "8", "--rounds", "2", "--threads", "1", "--out", str(out),
    )  # fmt: skip
    result = json.loads(out.with_suffix(".json").read_text())
    assert speed_table(result) in printed
    formats = result["formats"]
    assert formats["fp16"]["kv_bytes"] >= formats["int8"]["kv_bytes"]
    assert formats["fp16"]["requests_that_fit"] == 3 < formats["int8"]["requests_that_fit"]
    assert all(rate > 0 for measured in result["rounds"] for rate in measured.values())
    assert set(result["rounds"][0]) == {"fp16, 3", "int8, 3", f"int8, {formats['int8']['requests_that_fit']}"}


def test_a_prompt_comes_back_from_each_tier_of_a_tiny_model(tmp_path: Path) -> None:
    model, out = write_tiny_model(tmp_path / "tiny.gguf"), tmp_path / "tiers"
    printed = run(
        "tiers.py", "--model", str(model), "--threads", "1", "--rounds", "1", "--prompt-len", "330",
        "--vocab-size", "500", "--path", str(tmp_path), "--out", str(out),
    )  # fmt: skip
    (figures,) = json.loads(out.with_suffix(".json").read_text())["rounds"]
    assert all(figures[case]["load_mb"] > 0 for case in ("host", "disk", "disk, dropped from memory"))
    assert printed.strip() == out.with_suffix(".md").read_text().strip()


def test_vectors_next_to_answers_on_a_tiny_model(tmp_path: Path) -> None:
    model, out = write_tiny_model(tmp_path / "tiny.gguf"), tmp_path / "embeddings.json"
    printed = run(
        "embeddings.py", "--model", str(model), "--threads", "1", "--rounds", "1", "--shapes", "3x20", "2x5",
        "--json", str(out),
    )  # fmt: skip
    rates = json.loads(out.read_text())["rates"]
    assert set(rates) == {"3x20", "2x5"}
    assert all(rate > 0 for shape in rates.values() for (rate,) in shape.values())
    assert "| 3x20 | embed, mean |" in printed


def test_what_the_client_of_bench_serve_can_read(tmp_path: Path) -> None:
    out = tmp_path / "client.json"
    run(
        "load_client.py", "--streams", "2", "--tokens", "8", "--requests", "4", "--pace-s", "0.001", "--json", str(out)
    )  # fmt: skip
    figures = json.loads(out.read_text())
    assert [figures[kind]["tokens"] for kind in ("flood", "paced")] == [32, 16]
    for kind in ("flood", "paced"):
        assert figures[kind]["tokens_per_cpu_s"] > 0
        assert figures[kind]["tokens_per_read"] >= 1


def test_how_answers_differ() -> None:
    exact = Answers([-1.0, -2.0], [5, 6], [[1, 2, 3], [4, 5, 6]])
    figures = Answers([-1.5, -1.5], [5, 7], [[1, 2, 9], [4, 5, 6]]).against(exact)
    assert figures == {
        "nll": 1.5,
        "nll_difference": 0.0,
        "mean_logprob_difference": 0.5,
        "same_best": 0.5,
        "same_answers": 0.5,
        "shared_greedy_tokens": pytest.approx(5 / 6),
    }


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("decodes", "--num-seqs", "8", "--steps", "20"), "8 decodes, 1 group(s), 20 steps: median "),
        (("prefix", "--waiting", "50", "--steps", "20"), "prefix, 50 waiting, "),
        (("endurance", "--requests", "120"), "fcfs: 40 requests in "),
    ],
)
def test_the_scheduler_alone(arguments: tuple[str, ...], told: str) -> None:
    assert told in run("scheduler.py", *arguments)
