"""Batches for models that guess."""

import numpy as np

from octavo.decoding.speculation.rows import decode_rows, row_range, rows_between
from octavo.execution.protocols import StepBatch

BLOCK_SIZE = 4


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def step() -> StepBatch:
    """Rows 2 .. 6 of one sequence, 0 of a second, 7 .. 8 of a third, over two groups."""
    positions = ints(2, 3, 4, 5, 6, 0, 7, 8)
    owners = ints(0, 0, 0, 0, 0, 1, 2, 2)
    tables = np.array([[[1, 2, 0], [3, 0, 0], [4, 5, 6]], [[7, 8, 0], [9, 0, 0], [10, 11, 12]]], np.int32)
    return StepBatch(
        token_ids=np.arange(100, 108, dtype=np.int32),
        positions=positions,
        seq_starts=ints(0, 5, 6, 8),
        context_lens=ints(7, 1, 9),
        block_tables=tables,
        slot_mapping=tables[:, owners, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE,
        logit_rows=ints(4, 5, 7),
    )


def test_some_rows_of_each_sequence() -> None:
    batch = step()
    part = rows_between(batch, ints(1, 1, 0), ints(3, 1, 1))
    assert part is not None
    assert row_range(batch, ints(1, 1, 0), ints(3, 1, 1)).tolist() == [1, 2, 6]
    assert part.token_ids.tolist() == [101, 102, 106]
    assert part.positions.tolist() == [3, 4, 7]
    assert part.seq_starts.tolist() == [0, 2, 3]
    assert part.context_lens.tolist() == [5, 8]
    assert part.block_tables.tolist() == batch.block_tables[:, [0, 2]].tolist()
    assert part.slot_mapping.tolist() == batch.slot_mapping[:, [1, 2, 6]].tolist()
    assert len(part.logit_rows) == 0 and not part.block_copies


def test_all_rows_are_the_step_and_none_is_none() -> None:
    batch = step()
    whole = rows_between(batch, ints(0, 0, 0), ints(5, 1, 2))
    assert whole is not None
    for name in ("token_ids", "positions", "seq_starts", "context_lens", "block_tables", "slot_mapping"):
        np.testing.assert_array_equal(vars(whole)[name], vars(batch)[name])
    assert rows_between(batch, ints(5, 1, 2), ints(5, 1, 0)) is None


def test_single_rows() -> None:
    tables = step().block_tables[:, [0, 2]]
    batch = decode_rows(ints(7, 8), ints(5, 8), tables, BLOCK_SIZE)
    assert batch.seq_starts.tolist() == [0, 1, 2]
    assert batch.context_lens.tolist() == [6, 9]
    assert batch.logit_rows.tolist() == [0, 1]
    assert batch.slot_mapping.tolist() == [[2 * 4 + 1, 6 * 4], [8 * 4 + 1, 12 * 4]]
