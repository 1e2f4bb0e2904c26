"""Fills KV blocks with NaN: whoever reads what he should not cannot hide it."""

from collections.abc import Sequence

import numpy as np

from octavo.execution.protocols import ProgramExecutor, StepBatch

TOKENS_PER_RUN = 128


def poison(executor: ProgramExecutor, token_id: int, blocks: Sequence[int]) -> None:
    """Fills blocks with NaN, in all layers, by running a token that gives nothing else (its embedding is NaN)."""
    size, groups = executor.layout.block_size, len(executor.layout.groups)
    per_run = max(1, TOKENS_PER_RUN // size)
    for start in range(0, len(blocks), per_run):
        table = np.array(blocks[start : start + per_run], np.int32)
        count = min(TOKENS_PER_RUN, len(table) * size)
        slots = (table[:, None] * size + np.arange(size, dtype=np.int32)).reshape(-1)[:count]
        executor.run(
            StepBatch(
                token_ids=np.full(count, token_id, np.int32),
                positions=np.arange(count, dtype=np.int32),
                seq_starts=np.array([0, count], np.int32),
                context_lens=np.array([count], np.int32),
                block_tables=np.ascontiguousarray(np.broadcast_to(table, (groups, 1, len(table)))),
                slot_mapping=np.ascontiguousarray(np.broadcast_to(slots, (groups, count))),
                logit_rows=np.zeros(0, np.int32),
            )
        )
