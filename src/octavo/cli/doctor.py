"""`octavo doctor`: what this machine can do, what is wrong, and the fix."""

import dataclasses
import json
from typing import Annotated

import typer

from octavo.cli.flags import with_config_file


@with_config_file
def doctor(
    port: Annotated[int, typer.Option(help="The port that you want to serve on.")] = 8000,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable, for bug reports.")] = False,
) -> None:
    """Examine the machine and the installation. Ends with 1 if something keeps Octavo from running.

    \b
    Examples:
      octavo doctor
      octavo doctor --json > report.json
    """
    from octavo.cli.examination import Verdict, examine

    findings = examine(port)
    if as_json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    else:
        marks = {Verdict.OK: "ok  ", Verdict.WARN: "warn", Verdict.FAIL: "FAIL"}
        for finding in findings:
            print(f"{marks[finding.verdict]}  {finding.subject:10} {finding.fact}")
            if finding.fix:
                print(f"      {'':10} fix: {finding.fix}")
    if any(finding.verdict is Verdict.FAIL for finding in findings):
        raise typer.Exit(1)
