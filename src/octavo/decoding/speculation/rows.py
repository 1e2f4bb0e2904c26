"""Batches for models that guess: parts of a step that has run, and single rows behind what is known."""

import numpy as np

from octavo.execution.protocols import Float32, Int32, StepBatch

_NONE = np.empty(0, np.int32)


def decode_rows(token_ids: Int32, positions: Int32, block_tables: Int32, block_size: int) -> StepBatch:
    """One token for each of some sequences, with the logits of all.

    Args:
        token_ids: [S]
        positions: [S]
        block_tables: [G, S, max_blocks], at least as far as the positions.
    """
    rows = np.arange(len(token_ids) + 1, dtype=np.int32)
    return StepBatch(
        token_ids=token_ids,
        positions=positions,
        seq_starts=rows,
        context_lens=positions + np.int32(1),
        block_tables=np.ascontiguousarray(block_tables),
        slot_mapping=_slots(block_tables, rows[:-1], positions, block_size),
        logit_rows=rows[:-1],
    )


def likeliest(logits: Float32) -> tuple[Int32, Float32]:
    """[rows] the likeliest token of each row, and its chance.

    Args:
        logits: [rows, vocabulary]
    """
    best = logits.argmax(axis=1)
    highest = np.take_along_axis(logits, best[:, None], axis=1)
    chances = 1 / np.exp(logits - highest).sum(axis=1, dtype=np.float32)
    return best.astype(np.int32), chances


def row_range(batch: StepBatch, first: Int32, stop: Int32) -> Int32:
    """Indices of rows `first[s] .. stop[s] - 1` of each sequence s, ascending; `first[s] >= stop[s]`: none of it."""
    place = np.arange(len(batch.token_ids), dtype=np.int32)
    sequences = _sequences(batch)
    place -= batch.seq_starts[sequences]
    return np.flatnonzero((place >= first[sequences]) & (place < stop[sequences])).astype(np.int32)


def rows_between(batch: StepBatch, first: Int32, stop: Int32) -> StepBatch | None:
    """The rows of `row_range` as a batch without logits and without block copies, which the step itself has made; None:
    no row is left."""
    rows = row_range(batch, first, stop)
    if len(rows) == 0:
        return None
    kept, counts = np.unique(_sequences(batch)[rows], return_counts=True)
    starts = np.concatenate((_NONE, [0], np.cumsum(counts))).astype(np.int32)
    return StepBatch(
        token_ids=batch.token_ids[rows],
        positions=batch.positions[rows],
        seq_starts=starts,
        context_lens=batch.positions[rows[starts[1:] - 1]] + np.int32(1),
        block_tables=np.ascontiguousarray(batch.block_tables[:, kept]),
        slot_mapping=np.ascontiguousarray(batch.slot_mapping[:, rows]),
        logit_rows=_NONE,
    )


def _sequences(batch: StepBatch) -> Int32:
    """[T] the sequence of each row."""
    return np.repeat(np.arange(len(batch.context_lens), dtype=np.int32), np.diff(batch.seq_starts))


def _slots(block_tables: Int32, sequences: Int32, positions: Int32, block_size: int) -> Int32:
    """[G, T] where the state of each token goes."""
    blocks = block_tables[:, sequences, positions // block_size]
    return (blocks * block_size + positions % block_size).astype(np.int32)
