"""Drafts by a head that goes on from the target's hidden states (EAGLE; Li et al. 2024 and 2025), as a chain.

The state of position q comes from token q and the hidden state of position q - 1, so that a block's state depends on
its own tokens and those before, as its name says. (The papers number it q - 1: rotations know differences only.)

    position        p - 1      p        p + 1    p + 2
    token           known    known      draft    draft
    hidden before     ...    target's   head's   head's       propose: one row at a time, from p on
                      ...    target's   target's              ran: what was right, once more, with true hidden states
"""

from collections.abc import Collection, Sequence

import numpy as np

from octavo.decoding.speculation.proposer import DraftedRequest
from octavo.decoding.speculation.rows import decode_rows, likeliest, row_range, rows_between
from octavo.execution.protocols import DraftExecutor, Float32, Int32, RanStep, SlotArrays, StepBatch

_INPUT = _NEXT = "hidden"
"""The head's input, and its output that is the input of the next token."""


class EagleProposer:
    """An `octavo.execution.protocols.Proposer` that runs a head over the hidden states of the model that runs.

    Of a token whose predecessor's hidden state nobody has, as behind a prefix hit, it is taken as zero: guesses near it
    are worse, and no token depends on a guess.
    """

    def __init__(self, head: DraftExecutor, token_ids: Int32 | None, *, width: int, vocab_size: int) -> None:
        """
        Args:
            head: runs the head's program over its own cache layers, with the block tables of the model's. Slots are
                less than its `max_rows`: all may be asked about at once.
            token_ids: [rows of the head's logits] the token of each; None: rows are ids.
            width: of a hidden state.
            vocab_size: rows that are ids are less.
        """
        self._head = head
        self._vocab_size = vocab_size
        self._token_ids = token_ids
        self._before: Float32 = np.zeros((head.max_rows, width), np.float32)
        """[slot] hidden state of the last token that has run, of slots that were added."""
        self._is_added = np.zeros(head.max_rows, np.bool_)
        self._written = np.full(head.max_rows, -1, np.int32)
        """[slot] position of the known token from which the chain of this step began: its state is there; -1: none."""

    def add(self, slot: int, request: DraftedRequest) -> None:
        """See `Proposer`."""
        self._before[slot] = 0
        self._written[slot] = -1
        self._is_added[slot] = True

    def remove(self, slot: int) -> None:
        """See `Proposer`."""
        self._is_added[slot] = False

    def propose(
        self, slots: Sequence[int], most: Sequence[int], least_chance: float, held: SlotArrays
    ) -> list[list[int]]:
        """See `Proposer`: by one row of the head after another, as long as it thinks that they are likely enough."""
        asked, wanted = np.array(slots, np.int32), np.array(most, np.int32)
        positions = held.num_tokens[asked] - np.int32(1)
        token_ids, hidden = held.tokens[asked, positions], self._before[asked]
        guesses: list[list[int]] = [[] for _ in slots]
        live, chances = np.arange(len(asked)), np.ones(len(asked), np.float32)
        tables = held.block_tables[:, asked, : int((positions + wanted).max()) // held.block_size + 1]
        for depth in range(int(wanted.max())):
            batch = decode_rows(token_ids, positions, tables[:, live], held.block_size)
            token_ids, chance, hidden = self._next(batch, hidden)
            if depth == 0:
                self._written[asked] = positions
            chances *= chance
            is_likely = chances >= least_chance
            for index, token_id in zip(live[is_likely].tolist(), token_ids[is_likely].tolist(), strict=True):
                guesses[index].append(token_id)
            goes_on = is_likely & (wanted[live] > depth + 1)
            if not goes_on.any():
                break
            live, token_ids, hidden, chances = live[goes_on], token_ids[goes_on], hidden[goes_on], chances[goes_on]
            positions = positions[goes_on] + np.int32(1)
        return guesses

    def ran(self, step: RanStep) -> Collection[int]:
        """See `Proposer`: takes in all tokens that stand, but those that a chain began from."""
        batch, slots = step.batch, np.array(step.slots, np.int32)
        features = step.states.output("features")
        first_positions = batch.positions[batch.seq_starts[:-1]]
        skipped = (self._is_added[slots] & (self._written[slots] == first_positions)).astype(np.int32)
        rest = rows_between(batch, skipped, step.num_kept)
        if rest is not None:
            hidden = self._hidden_before(step, features, slots)
            self._head.fill(_INPUT, hidden[row_range(batch, skipped, step.num_kept)])
            self._head.run(rest)
        ends = batch.seq_starts[:-1] + step.num_kept
        some = step.num_kept > 0
        self._before[slots[some]] = features[ends[some] - 1]
        self._written[slots] = -1
        return ()

    def close(self) -> None:
        """See `Proposer`."""
        self._head.close()

    def _hidden_before(self, step: RanStep, features: Float32, slots: Int32) -> Float32:
        """[T, width] the hidden state of the token before each row's."""
        firsts = step.batch.seq_starts[:-1]
        hidden = np.empty_like(features)
        hidden[1:] = features[:-1]
        is_known = self._is_added[slots] & (step.batch.positions[firsts] > 0)
        hidden[firsts] = np.where(is_known[:, None], self._before[slots], np.float32(0))
        return hidden

    def _next(self, batch: StepBatch, hidden: Float32) -> tuple[Int32, Float32, Float32]:
        """[S] the likeliest next tokens, [S] their chances, and [S, width] the head's hidden states."""
        self._head.fill(_INPUT, hidden)
        logits = self._head.run(batch)
        if self._token_ids is None:
            token_ids, chances = likeliest(logits[:, : self._vocab_size])
        else:
            rows, chances = likeliest(logits)
            token_ids = self._token_ids[rows]
        return token_ids, chances, self._head.output(_NEXT).copy()
