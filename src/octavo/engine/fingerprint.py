"""The numerics fingerprint: the name of all that decides the bits of a KV block beside its tokens.

It roots the names of blocks and stands with every block that outlives an engine, so two engines share blocks if and
only if theirs are equal. Instruction set, threads, sizes of pool and batch are not in it: they change no bit.
"""

import sys
from collections.abc import Mapping
from hashlib import sha256

from octavo.execution.weights import LoadedWeight
from octavo.hub.cache import sha256_of
from octavo.hub.files import ModelFiles
from octavo.kv.spec import KVLayout
from octavo.model.program import Program

NUMERICS_VERSION = 1
"""Of the code that computes. Raise it with each change after which an executor may give other bits for the same step,
or lay a block out otherwise: another order of sums, another rounding or polynomial, another order of bytes in a block.
A change of the program (its ops, their order, their numbers) is noticed by itself."""


def numerics_fingerprint(
    weights_name: str, program: Program, weights: Mapping[str, LoadedWeight], layout: KVLayout, executor: str
) -> str:
    """The fingerprint, 64 hex digits. Equal in every process that computes equal bits.

    Args:
        weights_name: from `weights_name`.
        executor: kind of executor, where kinds differ in bits.
    """
    parts = (
        ("numerics", NUMERICS_VERSION, executor, sys.byteorder),
        ("weights", weights_name, [(name, weight.type.name) for name, weight in sorted(weights.items())]),
        ("ropes", program.ropes),
        ("program", program.ops, sorted(program.weights.items()), program.cache_layers),
        ("layout", layout.dtype.value, layout.block_size, layout.layers_per_block, layout.placement, layout.groups),
    )
    return sha256(repr(parts).encode()).hexdigest()


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
