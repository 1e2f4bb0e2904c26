"""Decisions are a contract: a change that decides otherwise for a canonical workload must say so."""

import difflib

import pytest

from tests.scheduling.recorded_plans import FOLDER, WORKLOADS, lines_of

HOW_TO_RECORD = "if this change of decisions is meant: python -m tests.scheduling.recorded_plans"


def differences(recorded: list[str], planned: list[str]) -> str:
    """The first steps that differ, as a diff with what came just before; empty if none does."""
    diff = list(difflib.unified_diff(recorded, planned, "recorded", "planned", n=2, lineterm=""))
    more = f"\n... and {len(diff) - 24} lines more" if len(diff) > 24 else ""
    return "\n".join(diff[:24]) + more


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_plans_are_those_recorded(name):
    recorded = (FOLDER / f"{name}.jsonl").read_text().splitlines()
    difference = differences(recorded, list(lines_of(WORKLOADS[name]().plans)))
    assert not difference, f"{name} is planned otherwise\n{difference}\n{HOW_TO_RECORD}"


def test_every_recording_belongs_to_a_workload():
    assert {file.stem for file in FOLDER.iterdir()} == set(WORKLOADS)


def test_the_workloads_reach_what_they_are_named_for():
    """A recording in which nothing happens would never fail."""
    counters = {name: make().counters for name, make in WORKLOADS.items()}
    assert counters["fcfs_never_preempt"]["preemptions"] == 0
    for name in ("fcfs_nothing_foreseen", "cheapest_victims", "priority"):
        assert counters[name]["preemptions"] >= 3, name
    assert all(each["cached_tokens"] > 0 for name, each in counters.items() if name != "chunks_beside_decodes")
    assert counters["fcfs"]["copied_tokens"] > 0 and counters["prefix"]["cached_tokens"] > 40
    assert sum(each["finished_abort"] for each in counters.values()) > 0


def test_a_changed_decision_is_shown_step_by_step():
    recorded = (FOLDER / "fcfs.jsonl").read_text().splitlines()
    planned = [*recorded[:3], recorded[3].replace('"step"', '"other"'), *recorded[4:]]
    shown = differences(recorded, planned)
    assert f"-{recorded[3]}" in shown and f" {recorded[2]}" in shown
    assert differences(recorded, recorded) == ""
