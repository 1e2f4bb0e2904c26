"""Checks that a trace is one: by Google's "Trace Event Format", and by what ours promise beyond it."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

ASYNC = {"ts", "id", "cat"}
FIELDS = {"X": {"ts", "dur"}, "b": ASYNC, "e": ASYNC, "n": ASYNC, "s": {"ts", "id"}, "t": {"ts", "id"},
          "f": {"ts", "id", "bp"}, "C": {"ts", "args"}, "M": {"args"}}  # fmt: skip
"""Phase -> what its events have beside name, pid and tid."""
HOLDERS = {"forward", "propose", "sample", "follow"}
"""Spans in which programs run."""
SLACK_US = 0.0021
"""Times have three decimals."""


@dataclass
class Slice:
    """A complete event, and those inside it."""

    event: dict[str, Any]
    inside: list["Slice"] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.event["name"])

    @property
    def us(self) -> float:
        return float(self.event["dur"])

    @property
    def end(self) -> float:
        return float(self.event["ts"]) + self.us

    def walk(self) -> Iterator["Slice"]:
        yield self
        for one in self.inside:
            yield from one.walk()


@dataclass
class CheckedTrace:
    """A trace whose format is right."""

    about: dict[str, Any]
    events: list[dict[str, Any]]
    slices: dict[int, list[Slice]]
    """By thread, the outermost ones."""
    threads: dict[int, str]

    @property
    def steps(self) -> list[Slice]:
        return [one for lane in self.slices.values() for one in lane if one.name.startswith("step ")]

    @property
    def ops(self) -> list[Slice]:
        return [one for step in self.steps for one in step.walk() if one.event["cat"].startswith("op,")]

    def named(self, name: str) -> list[Slice]:
        return [one for lane in self.slices.values() for top in lane for one in top.walk() if one.name == name]

    def requests(self) -> dict[str, list[dict[str, Any]]]:
        """Id -> its async events."""
        found = defaultdict(list)
        for event in self.events:
            if event.get("cat") == "request":
                found[event["id"]].append(event)
        return dict(found)


def checked(trace: bytes | str) -> CheckedTrace:
    """The trace, after all checks; asserts what is wrong."""
    whole = json.loads(trace)
    assert set(whole) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert whole["displayTimeUnit"] == "ms"
    events = whole["traceEvents"]
    for event in events:
        assert {"ph", "name", "pid", "tid"} <= set(event), event
        assert event["ph"] in FIELDS and FIELDS[event["ph"]] <= set(event), event
        assert event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0, event
    timed = [event["ts"] for event in events if event["ph"] != "M"]
    assert timed == sorted(timed), "not in the order of time"
    found = CheckedTrace(whole["otherData"], events, _nested(events), _threads(events))
    _check_async(found)
    _check_flows(found)
    _check_steps(found)
    return found


def _threads(events: list[dict[str, Any]]) -> dict[int, str]:
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {event["tid"] for event in events if event["ph"] == "X"} <= set(names), "a thread without a name"
    return names


def _nested(events: list[dict[str, Any]]) -> dict[int, list[Slice]]:
    """Complete events of a thread lie inside or beside each other."""
    lanes: dict[int, list[Slice]] = defaultdict(list)
    open_by_lane: dict[int, list[Slice]] = defaultdict(list)
    for event in events:
        if event["ph"] != "X":
            continue
        here, above = Slice(event), open_by_lane[event["tid"]]
        while above and above[-1].end <= event["ts"] + SLACK_US:
            above.pop()
        if above:
            assert here.end <= above[-1].end + SLACK_US, (above[-1].event, event)
            above[-1].inside.append(here)
        else:
            lanes[event["tid"]].append(here)
        above.append(here)
    return dict(lanes)


def _check_async(trace: CheckedTrace) -> None:
    """Begins and ends of a request match like brackets, the request's own around those of its phases."""
    for name, events in trace.requests().items():
        above: list[str] = []
        for event in events:
            if event["ph"] == "b":
                assert (event["name"] == name) == (not above), event
                above.append(event["name"])
            elif event["ph"] == "e":
                assert above.pop() == event["name"], event
            else:
                assert above, "an instant outside its request"
        assert not above, f"{name} has no end"


def _check_flows(trace: CheckedTrace) -> None:
    """Planned, run, taken in."""
    phases = defaultdict(list)
    for event in trace.events:
        if event["ph"] in "stf":
            phases[event["id"]].append(event["ph"])
    assert all(found in (["s", "t", "f"], ["s", "f"]) for found in phases.values()), phases
    assert len([1 for found in phases.values() if "t" in found]) == len(trace.steps)


def _check_steps(trace: CheckedTrace) -> None:
    """Parts of a step fill it, ops lie in parts that run programs, and no sum exceeds the whole."""
    for step in trace.steps:
        assert sum(part.us for part in step.inside) <= step.us + 1
        for part in step.inside:
            assert sum(op.us for op in part.inside) <= part.us + SLACK_US * (1 + len(part.inside))
            if part.inside:
                assert part.name in HOLDERS, part.event
            for op in part.inside:
                assert not op.inside and op.event["args"]["rows"] > 0, op.event
                assert op.event["args"]["busy_us"] >= 0
