"""The figures of the speculation benchmark, on counts that can be worked out by hand; its questions; a run on a tiny
model."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pairing import estimate
from speculation_report import AUTO, NEVER_LOSES, OFF, Target, as_markdown, figures, settings_of, target_of

from octavo.execution.loader.tiny import write_tiny_model

ROOT = Path(__file__).parents[2]


def record(elapsed_s: float, **counted: float) -> dict[str, float]:
    plain = {
        "tokens": 100.0,
        "request_steps": 100.0,
        "steps": 50.0,
        "computed_tokens": 110.0,
        "draft_tokens": 0.0,
        "accepted_draft_tokens": 0.0,
        "others_cpu_s": 0.0,
    }
    return {**plain, "elapsed_s": elapsed_s, **counted}


DRAFTED = {
    "request_steps": 40.0,
    "steps": 20.0,
    "computed_tokens": 150.0,
    "draft_tokens": 80.0,
    "accepted_draft_tokens": 60.0,
}
ROUNDS = [
    {OFF: record(10), AUTO: record(4, **DRAFTED)},
    {OFF: record(30), AUTO: record(10, **DRAFTED)},
    {OFF: record(20), AUTO: record(10, **DRAFTED)},
]


def test_ratios_are_of_the_same_round_and_counts_of_all() -> None:
    found = figures(ROUNDS, AUTO)
    assert (found.ratio.low, found.ratio.median, found.ratio.high) == (2, 2.5, 3)
    assert found.rate.median == 10
    assert found.tokens_per_step == 100 / 40
    assert found.acceptance == 60 / 80
    assert found.drafts_per_step == 2
    assert found.waste == 20 / 150
    assert found.step_ratio == 1.0, "a step: 0.2 s, 0.5 s, 0.5 s over 0.2 s, 0.6 s, 0.4 s"


def test_an_engine_that_does_not_speculate_has_no_acceptance() -> None:
    found = figures(ROUNDS, OFF)
    assert found.acceptance is None
    assert (found.ratio.median, found.waste, found.drafts_per_step) == (1, 0, 0)


def test_rounds_without_a_setting_do_not_count_for_it() -> None:
    rounds = [*ROUNDS, {OFF: record(9), "ngram:4": record(3)}]
    assert settings_of(rounds) == [AUTO, "ngram:4"]
    assert figures(rounds, AUTO).ratio.rounds == 3
    assert figures(rounds, "ngram:4").ratio.median == 3
    with pytest.raises(ValueError, match="'suffix' has never run"):
        figures(rounds, "suffix")


@pytest.mark.parametrize(
    ("workload", "batch", "setting", "target"),
    [
        ("code edit", 1, AUTO, Target(2.5, of_interval=False)),
        ("JSON by schema", 1, AUTO, Target(1.5, of_interval=False)),
        ("free chat", 1, AUTO, Target(NEVER_LOSES, of_interval=True)),
        ("free chat", 16, AUTO, Target(NEVER_LOSES, of_interval=True)),
        ("code edit", 32, AUTO, Target(NEVER_LOSES, of_interval=True)),
        ("code edit", 16, AUTO, None),
        ("extraction", 1, AUTO, None),
        ("free chat", 32, "suffix:4", None),
    ],
)
def test_what_is_asked_of_whom(workload: str, batch: int, setting: str, target: Target | None) -> None:
    assert target_of(workload, batch, setting) == target


def test_a_target_looks_at_the_median_or_at_the_lower_end() -> None:
    ratio = estimate([0.9, 2.0, 3.0])
    assert Target(2.0, of_interval=False).met(ratio)
    assert not Target(2.0, of_interval=True).met(ratio)


def test_the_page_says_what_was_met_and_what_was_missed() -> None:
    result = {
        "model": "tiny",
        "threads": 2,
        "clock": "wall time",
        "seed": None,
        "hardware": {"cpu": "a CPU", "usable_cores": 2},
        "command": "python x",
        "sizes": {"1": {"batches": 2, "max_tokens": 128}},
        "cells": {"code edit/1": ROUNDS, "free chat/16": [{OFF: record(10), AUTO: record(11)}]},
    }
    page = as_markdown(result)
    row = (
        "| code edit | 1 | 3 | 5 | auto | 10 | **2.50** [2.00, 3.00; 75 %] | median >= 2.5: met | 2.50 | 2.00 | 75 % |"
    )
    assert row in page
    assert "| free chat | 16 | 1 | 10 | auto | 9 | **0.91** [0.91, 0.91; 0 %] | interval >= 0.97: **missed** |" in page
    assert "greedy" in page


# ---- the questions


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, which finds its siblings beside it."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("speculation")


def test_each_kind_of_work_has_questions_for_the_largest_batch(bench: ModuleType) -> None:
    for workload, questions in bench.CROWDS.items():
        assert len({question.text for question in questions}) == bench.CROWD, workload
        assert all((question.schema is not None) == (workload == "JSON by schema") for question in questions)


def test_what_is_to_be_renamed_stands_in_its_file(bench: ModuleType) -> None:
    for question in bench.CROWDS["code edit"]:
        old = question.text.split("`")[1]
        code = question.text.partition("\n\n")[2]
        assert code.count(old) >= 2, old


def test_rounds_go_around_the_questions(bench: ModuleType) -> None:
    asked = [question for number in range(8) for question in bench.questions_of("free chat", 4, number)]
    assert asked == list(bench.CROWDS["free chat"])
    assert bench.questions_of("free chat", 4, 8) == asked[:4]


def test_other_tokens_are_an_error(bench: ModuleType) -> None:
    def answers(*tokens: tuple[int, ...]) -> list[object]:
        return [bench.Answers(tokens, 1.0, 1, {})]

    bench.require_equal({OFF: answers((1, 2), (3,)), AUTO: answers((1, 2), (3,))}, "here")
    with pytest.raises(SystemExit, match="here: with auto answer 1 is another one from token 0 on"):
        bench.require_equal({OFF: answers((1, 2), (3,)), AUTO: answers((1, 2), (4,))}, "here")
    with pytest.raises(SystemExit, match="from token its end on"):
        bench.require_equal({OFF: answers((1, 2)), AUTO: answers((1, 2, 3))}, "here")


@pytest.mark.parametrize(
    ("setting", "fields"),
    [
        ("off", {"speculation": "off"}),
        ("suffix:4", {"speculation": "suffix", "num_speculative_tokens": 4}),
        ("draft:a/model.gguf", {"speculation": "draft:a/model.gguf"}),
    ],
)
def test_a_setting_may_end_with_the_number_of_drafts(bench: ModuleType, setting: str, fields: dict) -> None:
    assert importlib.import_module("spec_engine").setting_fields(setting) == fields


# ---- whole runs


def run(*arguments: str) -> None:
    command = [sys.executable, "benchmarks/speculation.py", *arguments]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120)


def test_rounds_are_added_to_those_of_an_earlier_run(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf")
    common = (
        "--models", str(model), "--settings", "suffix:4", "auto", "--threads", "1", "--batches", "3",
        "--workloads", "free chat", "--out", str(tmp_path / "out"), "--cpu-time", "--rounds", "1",
    )  # fmt: skip
    run(*common)
    run(*common, "--append")
    result = json.loads((tmp_path / "out_tiny.gguf.json").read_text())
    rounds = result["cells"]["free chat/3"]
    assert [list(one) for one in rounds] == [[OFF, "suffix:4", AUTO], ["suffix:4", AUTO, OFF]]
    assert all(one[OFF]["tokens"] == one["suffix:4"]["tokens"] == one[AUTO]["tokens"] > 0 for one in rounds)
    assert all(one[OFF]["draft_tokens"] == 0 < one["suffix:4"]["steps"] for one in rounds)
    assert as_markdown(result) == (tmp_path / "out_tiny.gguf.md").read_text()


def test_the_profile_has_a_line_for_each_number_of_drafts(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf")
    run(
        "--models", str(model), "--threads", "1", "--profile", "--batches", "1", "2", "--drafts", "2",
        "--context", "20", "--seconds", "0", "--out", str(tmp_path / "out"),
    )  # fmt: skip
    steps = json.loads((tmp_path / "out_steps_tiny.gguf.json").read_text())["steps"]
    assert [(step["batch"], step["drafts"], step["rows"]) for step in steps] == [
        (1, 0, 1),
        (1, 2, 3),
        (2, 0, 2),
        (2, 2, 6),
    ]
    assert all(step["step_ms"] > step["forward_ms"] > 0 for step in steps)


# ---- next to llama.cpp


def peer_record(decode: float, token: int, drafts: int = 0, right: int = 0) -> dict[str, object]:
    return {"decode": decode, "tokens": [token], "drafts": drafts, "right_drafts": right}


def test_engines_are_compared_with_their_own_selves_and_with_our_best(bench: ModuleType) -> None:
    rounds = [
        {
            "octavo off": peer_record(10, 1),
            "octavo auto": peer_record(30, 1, 8, 6),
            "llama.cpp off, same file": peer_record(5, 2),
            "llama.cpp ngram-simple 4, 16, same file": peer_record(10, right_token, 16, 4),
        }
        for right_token in (2, 3)
    ]
    names = {name: {} for name in rounds[0]} | {"llama.cpp ngram-mod, same file": {"error": "it died"}}
    page = bench.speculation_peer.table({"engines": names, "rounds": [{"code edit": one} for one in rounds]})
    lines = page.splitlines()
    three, two = "**3.00** [3.00, 3.00; 50 %]", "**2.00** [2.00, 2.00; 50 %]"
    assert f"| code edit | octavo off | 10.0 | - | {three} | - | - |" in lines
    assert f"| code edit | octavo auto | 30.0 | {three} | - | 12 of 16 | 2 of 2 |" in lines
    assert (
        f"| code edit | llama.cpp ngram-simple 4, 16, same file | 10.0 | {two} | {three} | 8 of 32 | 1 of 2 |" in lines
    )
    assert lines[-1] == "Failed: llama.cpp ngram-mod, same file: it died"


def test_what_came_before_an_interruption_is_shown(bench: ModuleType) -> None:
    rounds = [{"code edit": {"llama.cpp off, same file": peer_record(5, 2)}, "extraction": {}}]
    page = bench.speculation_peer.table({"engines": {"llama.cpp off, same file": {}}, "rounds": rounds})
    assert page.splitlines()[-1] == "| code edit | llama.cpp off, same file | 5.0 | - | - | - | - |"


def test_every_engine_runs_its_file_with_its_kind_of_speculation(bench: ModuleType, tmp_path: Path) -> None:
    peer = bench.speculation_peer.Peer("server", {"same file": tmp_path / "a.gguf", "Q4_0": tmp_path / "b.gguf"})
    specs = bench.speculation_peer.specs(tmp_path / "a.gguf", peer, [AUTO], 2)
    assert len({spec.name for spec in specs}) == len(specs) == 2 + 2 * len(bench.speculation_peer.KINDS)
    assert specs[1].setting["options"] == {"speculation": AUTO}
    assert specs[-1].setting["model"] == str(tmp_path / "b.gguf")
    assert specs[-1].setting["arguments"] == list(bench.speculation_peer.KINDS["ngram-cache"])
    assert all(spec.setting["threads"] == 2 for spec in specs)


def test_an_engine_of_ours_is_asked_as_peers_are(bench: ModuleType, tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf")
    peer = bench.speculation_peer
    engines = [spec for spec in peer.specs(model, peer.Peer("none", {}), ["suffix:4"], 1) if "octavo" in spec.name]
    result: dict = {}
    peer.compare(engines, {"code edit": [[5, 6, 7, 5, 6]]}, 1, result)
    (cells,) = result["rounds"]
    off, drafted = cells["code edit"]["octavo off"], cells["code edit"]["octavo suffix:4"]
    assert off["tokens"] == drafted["tokens"]
    assert len(off["tokens"]) == peer.OUTPUT_LEN
    assert off["drafts"] == 0 < drafted["drafts"]
