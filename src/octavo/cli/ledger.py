"""`octavo ledger`: the arithmetic of a model on a machine, before either runs."""

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.flags import Settings, with_settings
from octavo.planning.workload import Parallel, Workload

if TYPE_CHECKING:
    from octavo.planning.hardware import HardwareProfile

_HERE = "cpu"


@with_settings(Parallel, Workload)
def ledger(
    settings: Settings,
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", help="A config that ships (llama-3-70b, ...), a config.json, a .gguf file, a cached model."
        ),
    ] = "smollm2-135m",
    hardware: Annotated[
        str,
        typer.Option(
            metavar="cpu|NAME|FILE", help="This machine, measured once; a shipped profile (h100x8, ...); a JSON file."
        ),
    ] = _HERE,
    weights: Annotated[
        str | None,
        typer.Option(help="Price weights of another number format: bf16, fp8, int8, int4, ...", show_default=False),
    ] = None,
    draft_model: Annotated[
        str | None, typer.Option(help="A model that drafts for it, named like it.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One object; keys name quantity and base unit.")] = False,
) -> None:
    """Count bytes, blocks, bounds and messages of a model on a machine. Nothing is fetched or run.

    \b
    Examples:
      octavo ledger
      octavo ledger -m llama-3-70b --hardware h100x8 --tp 8 --prompt 2050 --output 300
      octavo ledger -m ./model.gguf --hardware ./machine.json --json
    """
    from octavo.cli.ledger_model import model_named
    from octavo.planning.deployment import deploy
    from octavo.planning.report import as_json as as_object
    from octavo.planning.report import as_table, machine_ledger

    parallel = Parallel(**{name: settings[name] for name in ("tp", "pp") if name in settings})
    workload = Workload(**{name: value for name, value in settings.items() if name not in ("tp", "pp")})
    priced, machine = model_named(model, weights), _hardware(hardware)
    drafter = None if draft_model is None else deploy(model_named(draft_model), machine, Parallel(), workload)
    whole = machine_ledger(replace(deploy(priced, machine, parallel, workload), draft=drafter))
    print(json.dumps(as_object(whole), indent=2) if as_json else as_table(whole))


def _hardware(name: str) -> "HardwareProfile":
    from octavo.planning.hardware import hardware_named

    if name != _HERE:
        return hardware_named(name)
    from octavo.bench.this_machine import MEASURE_S, this_machine
    from octavo.engine.machine_rates import profile_path
    from octavo.hub import default_root
    from octavo.platform.cpu import describe_machine

    if not profile_path(default_root(), describe_machine()).exists():
        print(
            f"measuring this machine for about {MEASURE_S:.0f} s; figures mean most when it is quiet", file=sys.stderr
        )
    return this_machine(default_root())
