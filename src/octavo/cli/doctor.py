"""`octavo doctor`: what this machine can do, what is wrong, and the fix."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.flags import with_config_file
from octavo.config import ExecutionConfig
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.bench.shares import MachineShares
    from octavo.cli.examination import Finding

MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
"""Verdict -> how its lines begin."""


@with_config_file
def doctor(
    port: Annotated[int, typer.Option(help="The port that you want to serve on.")] = 8000,
    bench: Annotated[
        bool,
        typer.Option(
            "--bench", help="Measure, too: the machine's limits, and how close steps and their ops come to them."
        ),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="What memory an engine of it takes here, told only if named; with --bench, whose steps to measure "
            "[default: a cached model, or a synthetic one].",
        ),
    ] = None,
    max_memory: Annotated[
        str | None, typer.Option(metavar="SIZE|N%", help="With --model: as for `octavo serve`.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable, for bug reports.")] = False,
) -> None:
    """Examine the machine and the installation. Ends with 1 if something keeps Octavo from running.

    \b
    Examples:
      octavo doctor
      octavo doctor --json > report.json
      octavo doctor --model qwen2.5-coder-0.5b      (what it takes of this machine's memory)
      octavo doctor --bench --model smollm2-135m    (steps, then a table of their ops)
    """
    from octavo.cli.examination import Verdict, examine, memory_needs

    ExecutionConfig(max_memory=max_memory)  # a size that is none is told before anything else
    if max_memory is not None and model is None:
        raise ConfigError("max_memory", max_memory, "is for one model's engine: name it, as in --model smollm2-135m")
    findings = examine(port)
    findings += [] if model is None else [memory_needs(model, max_memory)]
    broken = any(finding.verdict is Verdict.FAIL for finding in findings)
    if not as_json:
        _print_findings(findings)
    measured = _measure(model) if bench and not broken else None
    if as_json:
        listed = [dataclasses.asdict(finding) for finding in findings]
        whole = {"findings": listed, "bench": dataclasses.asdict(measured) if measured else None} if bench else listed
        print(json.dumps(whole, indent=2))
    elif measured is not None:
        print_shares(measured)
    if broken:
        raise typer.Exit(1)


def _print_findings(findings: "Sequence[Finding]") -> None:
    for finding in findings:
        print(f"{MARKS[finding.verdict]}  {finding.subject:10} {finding.fact}")
        if finding.fix:
            print(f"      {'':10} fix: {finding.fix}")


def _measure(model: str | None) -> "MachineShares":
    from octavo.bench.shares import measure_machine
    from octavo.cli.terminal import download_progress

    print("measuring for about 15 s; figures mean most on a quiet machine", file=sys.stderr)
    with download_progress() as progress:
        return measure_machine(model, progress=progress)


def print_shares(shares: "MachineShares") -> None:
    """Prints what was measured, with a warning if the machine was busy."""
    from octavo.bench.op_shares import as_table
    from octavo.bench.shares import as_text

    for line in as_text(shares):
        print(f"ok    {'bench':10} {line}")
    for step in shares.steps:
        print(f"\n{step.case}, by op:")
        print("\n".join(as_table(step.ops)))
    print()
    if shares.busy:
        cores = f"{shares.usable_cores} cores"
        print(f"warn  {'bench':10} load {shares.load:.1f} on {cores} before the measurement: other programs took part")
        print(f"      {'':10} fix: measure again when it is quiet")
