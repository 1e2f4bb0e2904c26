"""The whole of a conversion: open, plan, write, verify, put into place."""

import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from octavo.conversion.gguf_to_gguf import plan_gguf_to_gguf
from octavo.conversion.hf_to_gguf import plan_hf_to_gguf
from octavo.conversion.hf_to_hf import plan_hf_to_hf
from octavo.conversion.plan import Plan, Source
from octavo.conversion.target import FIELD, check_place, write_whole
from octavo.conversion.verify import program_of, verify
from octavo.errors import ConfigError
from octavo.execution.loader import Checkpoint, open_checkpoint
from octavo.execution.quant.recipe import FLOATS, Recipe
from octavo.model.program import Program

log = logging.getLogger(__name__)

Format = Literal["gguf", "safetensors"]
OnWritten = Callable[[int, int], None]
"""Told of the bytes written so far and of all."""


@dataclass(frozen=True)
class Conversion:
    """What was written."""

    path: Path
    num_bytes: int
    num_source_bytes: int
    """Of all weight files of the source."""
    types: dict[str, int]
    """Number format -> how many tensors are in it."""


def quantise_model(
    source: Source,
    recipe: Recipe,
    output: Path,
    *,
    file_format: Format = "gguf",
    force: bool = False,
    threads: int = 1,
    on_written: OnWritten = lambda done, total: None,
) -> Conversion:
    """Writes a model in another number format.

    Raises:
        ConfigError: nothing would change, or the result cannot be written to `output`.
        ModelError: the source cannot be read, or not be said in the wanted format.
    """
    if output.resolve() in {file.resolve() for file in source.files} | {source.folder.resolve()}:
        raise ConfigError(FIELD, str(output), "is the model itself; name another place")
    is_folder = file_format == "safetensors"
    check_place(output, force=force, is_folder=is_folder)  # before a big model is planned in vain
    checkpoint = open_checkpoint(source.files)
    program = program_of(checkpoint)
    with ThreadPoolExecutor(threads) as pool:
        plan = _planner(checkpoint.format, file_format)(source, checkpoint, recipe, pool)
        _check_worth(plan, recipe, same_format=checkpoint.format == file_format)
        size = plan.num_bytes
        write_whole(output, size, partial(_write, plan, program, on_written), force=force, is_folder=is_folder)
    return Conversion(output, size, sum(file.stat().st_size for file in source.files), _count_types(plan))


Planner = Callable[[Source, Checkpoint, Recipe, ThreadPoolExecutor], Plan]
PLANNERS: dict[tuple[str, str], Planner] = {
    ("gguf", "gguf"): plan_gguf_to_gguf,
    ("safetensors", "gguf"): plan_hf_to_gguf,
    ("safetensors", "safetensors"): plan_hf_to_hf,
}
"""(format of the source, format of the result) -> who plans it."""


def _planner(source_format: str, file_format: str) -> Planner:
    """
    Raises:
        ConfigError: nobody makes the one of the other.
    """
    planner = PLANNERS.get((source_format, file_format))
    if planner is None:
        problem = f"is not made of {source_format} files; start from the Hugging Face folder, or write --format gguf"
        raise ConfigError("format", file_format, problem)
    return planner


def _check_worth(plan: Plan, recipe: Recipe, *, same_format: bool) -> None:
    """
    Raises:
        ConfigError: no tensor would get another type.
    """
    wanted = recipe.weights.name.lower()
    changed = [change for change in plan.changes if change.stored is not change.wanted]
    if same_format and not changed:
        raise ConfigError("to", wanted, "would change nothing: every matrix is in this or in fewer bits already")
    for kind in sorted({change.wanted for change in changed} - FLOATS, key=lambda kind: kind.name):
        twice = sorted({change.stored.name for change in changed if change.wanted is kind} - {f.name for f in FLOATS})
        if twice:
            told = ", ".join(twice)
            log.warning("%s is made from %s, which had lost some already: better from floats", kind.name.lower(), told)


def _write(plan: Plan, program: Program, on_written: OnWritten, path: Path) -> None:
    done, total = 0, plan.num_tensor_bytes

    def count(num_bytes: int) -> None:
        nonlocal done
        done += num_bytes
        on_written(done, total)

    files, checksums = plan.write(path, count)
    verify(files, checksums.by_name, program)


def _count_types(plan: Plan) -> dict[str, int]:
    return dict(Counter(change.wanted.name for change in plan.changes))
