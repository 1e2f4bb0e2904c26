"""What ops take in the steps of a trace (`POST /admin/profile`, `--profile`): by name, over all layers.

    python benchmarks/trace_ops.py trace.json [--decode-rows N] [--json OUT.json]

Takes the steps without prompts, with `--decode-rows` those of so many requests. Of each place in the program the 10th
percentile over these steps counts: what it takes when nobody interferes.
"""

import argparse
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]


@dataclass(frozen=True)
class OpTime:
    """All ops of one name in one step."""

    op: str
    ms: float
    share: float
    """Of all ops of the step."""


@dataclass(frozen=True)
class StepTime:
    """An undisturbed step."""

    steps: int
    """Of how many."""
    step_ms: float
    parts_ms: dict[str, float]
    """What the step is made of."""
    ops: list[OpTime]


def quiet_ms(durations_us: Sequence[float]) -> float:
    """The 10th percentile."""
    return sorted(durations_us)[len(durations_us) // 10] / 1e3


def read_trace(path: Path) -> list[Event]:
    """The complete events, in the order of time.

    Raises:
        SystemExit: it cannot be read, or is no trace.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return [event for event in json.loads(content)["traceEvents"] if event["ph"] == "X"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = (
            f"{path} is no trace of Octavo ({type(error).__name__}: {error}); docs/profiling.md tells how to get one"
        )
        raise SystemExit(problem) from None


def steps_of(events: Sequence[Event]) -> Iterator[tuple[Event, list[Event]]]:
    """Each step, with what lies in it."""
    step: Event | None = None
    inside: list[Event] = []
    for event in events:
        if "decode_rows" in event["args"]:
            if step is not None:
                yield step, inside
            step, inside = event, []
        elif step is not None and event["tid"] == step["tid"] and event["ts"] < step["ts"] + step["dur"]:
            inside.append(event)
    if step is not None:
        yield step, inside


def summary(events: Sequence[Event], decode_rows: int | None) -> StepTime:
    """
    Raises:
        SystemExit: there is no such step.
    """
    lengths: list[float] = []
    parts: dict[str, list[float]] = defaultdict(list)
    places: dict[tuple[str, int], list[float]] = defaultdict(list)
    for step, inside in steps_of(events):
        args = step["args"]
        if args["prefill_tokens"] or decode_rows not in (None, args["decode_rows"]):
            continue
        lengths.append(step["dur"])
        counts: dict[str, int] = defaultdict(int)
        for event in inside:
            if event["cat"] == "core":
                parts[event["name"]].append(event["dur"])
            else:
                places[event["name"], counts[event["name"]]].append(event["dur"])
                counts[event["name"]] += 1
    if not lengths:
        found = sorted(
            {step["args"]["decode_rows"] for step, _ in steps_of(events) if not step["args"]["prefill_tokens"]}
        )
        raise SystemExit(f"the trace has no step of that kind; those that only decode have --decode-rows {found}")
    by_op: dict[str, float] = defaultdict(float)
    for (name, _), durations in places.items():
        by_op[name] += quiet_ms(durations)
    total = sum(by_op.values())
    ops = [OpTime(op, ms, ms / total) for op, ms in sorted(by_op.items(), key=lambda item: -item[1])]
    parts_ms = {name: quiet_ms(durations) for name, durations in parts.items()}
    return StepTime(len(lengths), quiet_ms(lengths), parts_ms, ops)


def main() -> None:
    """Prints a table, and writes the figures where it is told to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--decode-rows", type=int, help="only steps of so many requests")
    parser.add_argument("--json", type=Path, help="write all figures there")
    options = parser.parse_args()
    found = summary(read_trace(options.trace), options.decode_rows)
    parts = ", ".join(f"{name} {ms:.2f}" for name, ms in found.parts_ms.items())
    print(f"{found.steps} steps, undisturbed {found.step_ms:.2f} ms: {parts}")
    for op in found.ops:
        print(f"{op.ms:9.3f} ms {100 * op.share:5.1f} %  {op.op}")
    if options.json is not None:
        options.json.write_text(json.dumps(asdict(found), indent=2) + "\n")


if __name__ == "__main__":
    main()
