"""Fills KV blocks with NaN: whoever reads what he should not cannot hide it."""

from collections.abc import Sequence

import numpy as np

from octavo.execution.protocols import ProgramExecutor, StepBatch

TOKENS_PER_RUN = 128


def poison(executor: ProgramExecutor, token_id: int, blocks: Sequence[int]) -> None:
    """Fills blocks with NaN, in all layers: one by running a token that gives nothing else (its embedding is NaN), the
    others by copying that one."""
    for block in blocks[:1]:
        _fill(executor, token_id, block)
        for group in range(len(executor.layout.groups)):
            data = np.empty(executor.block_bytes(group), np.uint8)
            executor.read_block(group, block, data)
            for other in blocks[1:]:
                executor.write_block(group, other, data)


def _fill(executor: ProgramExecutor, token_id: int, block: int) -> None:
    size, groups = executor.layout.block_size, len(executor.layout.groups)
    for first in range(0, size, TOKENS_PER_RUN):
        positions = np.arange(first, min(first + TOKENS_PER_RUN, size), dtype=np.int32)
        count = len(positions)
        executor.run(
            StepBatch(
                token_ids=np.full(count, token_id, np.int32),
                positions=positions,
                seq_starts=np.array([0, count], np.int32),
                context_lens=np.array([first + count], np.int32),
                block_tables=np.full((groups, 1, 1), block, np.int32),
                slot_mapping=np.ascontiguousarray(np.broadcast_to(block * size + positions, (groups, count))),
                logit_rows=np.zeros(0, np.int32),
            )
        )
