"""The first things a newcomer does, with the real model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real_models import model_path

RUN = "from octavo.cli.main import main; main()"


def octavo(*arguments: str, given: str = "") -> str:
    """Runs a command that must succeed; what it printed."""
    command = [sys.executable, "-c", RUN, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, input=given, timeout=280, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_readmes_first_command_names_paris() -> None:
    model_path("smollm2-135m")
    assert "Paris" in octavo("chat", "What is the capital of France?")


def test_a_question_may_come_through_a_pipe() -> None:
    model_path("smollm2-135m")
    assert "Paris" in octavo("chat", "--max-tokens", "12", "--threads", "1", given="What is the capital of France?")


def test_complete_as_json() -> None:
    model_path("smollm2-135m")
    answer = json.loads(octavo("complete", "The capital of France is", "--max-tokens", "4", "--json", "--threads", "1"))
    assert answer["text"].startswith(" Paris")
    assert answer["finish_reason"] == "length"
    assert answer["completion_tokens"] == len(answer["token_ids"]) == 4


def test_doctor_has_no_complaint_that_keeps_octavo_from_running() -> None:
    findings = json.loads(octavo("doctor", "--json"))
    assert {finding["subject"] for finding in findings} >= {"cpu", "native", "cores", "memory", "cache", "port"}
    assert all(finding["fix"] for finding in findings if finding["verdict"] != "ok")


def test_benchmarks_write_what_they_promise(tiny_file: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    shared = ["-m", tiny_file, "--threads", "1", "--input-len", "20", "--output-len", "5", "--json", str(out)]
    printed = octavo("bench", "throughput", *shared, "--num-prompts", "6", "--max-concurrency", "3")
    figures = json.loads(out.read_text())
    assert "output_tokens_per_s" in printed
    assert {
        *("model", "hardware", "versions", "config", "num_prompts", "input_len", "output_len", "concurrency"),
        *("elapsed_s", "output_tokens_per_s", "total_tokens_per_s", "prefill_tokens_per_s", "requests_per_s"),
        *("prefix_hit_rate", "peak_memory_bytes"),
    } <= set(figures)
    assert (figures["num_prompts"], figures["concurrency"], figures["prefix_hit_rate"]) == (6, 3, 0)
    assert figures["output_tokens_per_s"] * figures["elapsed_s"] == pytest.approx(30)
    octavo("bench", "latency", *shared, "--batch-size", "2", "--repeats", "3")
    figures = json.loads(out.read_text())
    for name in ("prefill_s", "prefill_tokens_per_s", "decode_step_s", "decode_tokens_per_s"):
        assert 0 < figures[name]["p10"] <= figures[name]["median"] <= figures[name]["p90"]
