"""Drafts by a smaller model of the same tokens, greedy, as a chain.

    position        p          p + 1    p + 2    p + 3
    token           known      draft    draft    draft
    run by          propose    propose  propose  ran, if all drafts were right

Its layers hold the state of the very tokens that the first model's hold: `propose` runs the last known token and its
own guesses, one row at a time; `ran` runs whatever else of the step stands, all rows of a prompt among it.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from octavo.decoding.speculation.proposer import DraftedRequest
from octavo.decoding.speculation.rows import decode_rows, likeliest, rows_between
from octavo.execution.protocols import Int32, ProgramExecutor, RanStep, SlotArrays, StepBatch

_NO_ROWS = np.empty(0, np.int32)
_NO_CHAIN = (-1, np.empty(0, np.int32))


class DraftModelProposer:
    """An `octavo.execution.protocols.Proposer` that runs a model over its own cache layers, with the block tables of
    the first model's."""

    def __init__(self, executor: ProgramExecutor, vocab_size: int) -> None:
        """
        Args:
            vocab_size: ids from here on are never guessed.
        """
        self._executor = executor
        self._vocab_size = vocab_size
        self._chains: dict[int, tuple[int, Int32]] = {}
        """Slot -> position of the first, and the tokens, that `propose` has run for this step."""

    def add(self, slot: int, request: DraftedRequest) -> None:
        """See `Proposer`. What it needs to know stands in the KV memory."""

    def remove(self, slot: int) -> None:
        """See `Proposer`."""
        self._chains.pop(slot, None)

    def propose(
        self, slots: Sequence[int], most: Sequence[int], least_chance: float, held: SlotArrays
    ) -> list[list[int]]:
        """See `Proposer`: the likeliest token each, by one row after another, as long as the model thinks that they are
        likely enough."""
        asked, wanted = np.array(slots, np.int32), np.array(most, np.int32)
        positions = held.num_tokens[asked] - np.int32(1)
        tables = held.block_tables[:, asked, : int((positions + wanted).max()) // held.block_size + 1]
        chains = np.zeros((len(asked), int(wanted.max()) + 1), np.int32)
        chains[:, 0] = held.tokens[asked, positions]
        num_run, chances = np.zeros_like(wanted), np.ones(len(asked), np.float32)
        for depth in range(int(wanted.max())):
            live = np.flatnonzero(wanted > depth)
            if len(live) == 0:
                break
            batch = decode_rows(
                chains[live, depth], positions[live] + np.int32(depth), tables[:, live], held.block_size
            )
            num_run[live] += np.int32(1)
            chains[live, depth + 1], chance = likeliest(self._executor.run(batch)[:, : self._vocab_size])
            chances[live] *= chance
            wanted[live[chances[live] < least_chance]] = depth
        for row, slot in enumerate(slots):
            self._chains[slot] = int(positions[row]), chains[row, : num_run[row]]
        return [chain[1 : 1 + count].tolist() for chain, count in zip(chains, wanted, strict=True)]

    def ran(self, step: RanStep) -> Collection[int]:
        """See `Proposer`: runs what stands and has not been run."""
        rest = self._rest(step)
        if rest is not None:
            self._executor.run(rest)
        return ()

    def close(self) -> None:
        """See `Proposer`."""
        self._executor.close()

    def _rest(self, step: RanStep) -> StepBatch | None:
        if not self._chains and (step.num_kept == np.diff(step.batch.seq_starts)).all():
            return replace(step.batch, logit_rows=_NO_ROWS, block_copies=())
        return rows_between(step.batch, self._num_run(step), step.num_kept)

    def _num_run(self, step: RanStep) -> Int32:
        """[S] rows of each sequence, from its first on, that a chain has run with the same tokens. Ends all chains."""
        batch, counts = step.batch, np.zeros(len(step.slots), np.int32)
        for sequence, slot in enumerate(step.slots):
            first, tokens = self._chains.pop(slot, _NO_CHAIN)
            begin, end = batch.seq_starts[sequence : sequence + 2]
            if batch.positions[begin] == first:
                shared = min(len(tokens), int(end - begin))
                counts[sequence] = np.logical_and.accumulate(
                    batch.token_ids[begin : begin + shared] == tokens[:shared]
                ).sum()
        return counts
