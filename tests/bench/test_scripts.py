"""The benchmark scripts: their arithmetic, and one quick run of each on a tiny model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
