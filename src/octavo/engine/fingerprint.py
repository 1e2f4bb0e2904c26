"""The numerics fingerprint: the name of all that decides the bits of a KV block beside its tokens.

It roots the names of blocks and stands with every block that outlives an engine, so two engines share blocks if and
only if theirs are equal. Instruction set, threads, sizes of pool and batch are not in it: they change no bit.
"""

import sys
from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

from octavo.execution.weights import LoadedWeight
from octavo.hub.cache import sha256_of
from octavo.hub.files import ModelFiles
from octavo.kv.spec import KVLayout
from octavo.model.program import Program

NUMERICS_VERSION = 1
"""Of the code that computes. Raise it with each change after which an executor may give other bits for the same step,
or lay a block out otherwise: another order of sums, another rounding or polynomial, another order of bytes in a block.
A change of the program (its ops, their order, their numbers) is noticed by itself."""


class Computed(NamedTuple):
    """A model, as far as it decides bits."""

    weights_name: str
    """From `weights_name`."""
    program: Program
    weights: Mapping[str, LoadedWeight]


def numerics_fingerprint(model: Computed, layout: KVLayout, executor: str, second: Computed | None = None) -> str:
    """The fingerprint, 64 hex digits. Equal in every process that computes equal bits.

    Args:
        executor: kind of executor, where kinds differ in bits.
        second: a model whose layers lie in the same blocks.
    """
    numerics = ("numerics", NUMERICS_VERSION, executor, sys.byteorder)
    laid_out = (
        "layout", layout.dtype.value, layout.block_size, layout.layers_per_block, layout.placement, layout.groups
    )  # fmt: skip
    parts = (numerics, *_parts(model), laid_out, *(() if second is None else _parts(second)))
    return sha256(repr(parts).encode()).hexdigest()


def _parts(model: Computed) -> tuple[tuple[object, ...], ...]:
    program = model.program
    return (
        ("weights", model.weights_name, [(name, weight.type.name) for name, weight in sorted(model.weights.items())]),
        ("ropes", program.ropes),
        ("program", program.ops, sorted(program.weights.items()), program.cache_layers),
    )


def weights_name(files: ModelFiles, *, lasting: bool) -> str:
    """Names the bytes of a model's files.

    Args:
        lasting: the name is to mean the same in other processes and after restarts. Then a file that the hub has not
            verified is read for it, about a second per GB; else path, size and time of change do.
    """
    if files.sha256 is not None:
        return files.sha256
    if not lasting:
        return repr([(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files.files])
    digests = [sha256_of(file) for file in files.files]
    return digests[0] if len(digests) == 1 else sha256("\n".join(digests).encode()).hexdigest()
