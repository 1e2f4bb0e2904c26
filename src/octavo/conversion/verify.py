"""Reading a written file again, as a stranger would."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import isclose
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from octavo.errors import ModelFileError
from octavo.execution.loader import Checkpoint, open_checkpoint
from octavo.execution.weights import checkpoint_header
from octavo.model.program import Program
from octavo.model.registry import define_model

_OWN_NAMES = ("name", "notes")
"""Fields of a program that do not change what it computes."""
_CLOSE = 1e-6
"""GGUF keeps settings as float32, config.json in decimals."""


def verify(files: list[Path], checksums: Mapping[str, int], program: Program) -> None:
    """Opens a result and checks that it holds what was written, and that it is the model it was made from.

    Raises:
        ModelFileError: it is not: the disk or memory is at fault, or Octavo.
    """
    checkpoint = open_checkpoint(files)
    if set(checkpoint.tensors) | set(checkpoint.code_tensors) != set(checksums):
        raise ModelFileError("holds other tensors than were written; write it again", str(files[0]))
    for name, expected in checksums.items():
        stored = checkpoint.raw(name) if name in checkpoint.tensors else checkpoint.codes(name)
        if crc32(np.ascontiguousarray(stored).data) != expected:
            raise ModelFileError(f"tensor {name!r} is not what was written: check the disk", str(files[0]))
    difference = program_difference(program, program_of(checkpoint))
    if difference is not None:
        raise ModelFileError(f"computes another model than its source: {difference}", str(files[0]))


def program_of(checkpoint: Checkpoint) -> Program:
    """What a checkpoint computes."""
    return define_model(checkpoint_header(checkpoint)).program


def program_difference(one: Program, other: Program) -> str | None:
    """The first place where two programs compute different things, in words; None if there is none."""
    for field in fields(Program):
        if field.name not in _OWN_NAMES:
            found = _difference(field.name, getattr(one, field.name), getattr(other, field.name))
            if found is not None:
                return found
    return None


def _difference(place: str, one: Any, other: Any) -> str | None:
    if type(one) is not type(other):
        return f"{place} is {one!r:.80} and {other!r:.80}"
    if is_dataclass(one) and not isinstance(one, type):
        return _first(place, {f.name: (getattr(one, f.name), getattr(other, f.name)) for f in fields(one)})
    if isinstance(one, dict) and one.keys() == other.keys():
        return _first(place, {str(key): (one[key], other[key]) for key in one})
    if isinstance(one, tuple | list) and len(one) == len(other):
        return _first(place, {str(i): pair for i, pair in enumerate(zip(one, other, strict=True))})
    same = isclose(one, other, rel_tol=_CLOSE) if isinstance(one, float) else one == other
    return None if same else f"{place} is {one!r:.80} and {other!r:.80}"


def _first(place: str, pairs: Mapping[str, tuple[Any, Any]]) -> str | None:
    found = (_difference(f"{place}.{name}", one, other) for name, (one, other) in pairs.items())
    return next((difference for difference in found if difference is not None), None)
