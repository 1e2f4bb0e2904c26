"""Packing weights: from the bytes of a checkpoint to the order in which the kernels read them, a few at a time."""

from collections.abc import Callable, Iterator, Mapping

from octavo import _native
from octavo.execution.protocols import Bytes, Int32
from octavo.execution.weights import LoadedWeight

BATCH_BYTES = 64 << 20
"""Of packed weights at one time: enough for all threads, and all that ever stands in memory twice."""

PackReport = Callable[[int, int], None]
"""Told how many bytes are packed, of how many."""


def tell_nobody(done_bytes: int, total_bytes: int) -> None:
    """No `PackReport`."""


def pack_weights(
    native: _native.Executor, matrices: Mapping[str, int], weights: Mapping[str, LoadedWeight], report: PackReport
) -> None:
    """Packs matrices into memory that the executor has for them.

    Args:
        matrices: name -> index in the executor, of those that are its own, in the order in which they were added.
    """
    done = 0
    for batch in batches(native, matrices):
        native.pack([source(matrices[name], weights[name]) for name in batch])
        done += sum(native.matrix_bytes(matrices[name]) for name in batch)
        report(done, native.packed_bytes)


def source(matrix: int, weight: LoadedWeight) -> tuple[int, Bytes, Int32 | None, bool]:
    """A weight as `_native.Executor.pack` takes it."""
    return matrix, weight.raw, weight.row_order, weight.mapped


def batches(native: _native.Executor, matrices: Mapping[str, int]) -> Iterator[list[str]]:
    """Names of weights to pack at one time, in order."""
    batch: list[str] = []
    num_bytes = 0
    for name, index in matrices.items():
        size = native.matrix_bytes(index)
        if batch and num_bytes + size > BATCH_BYTES:
            yield batch
            batch, num_bytes = [], 0
        batch.append(name)
        num_bytes += size
    if batch:
        yield batch
