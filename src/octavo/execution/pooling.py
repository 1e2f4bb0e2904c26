"""Pooling: from the final hidden states of a prompt to one vector.

Every kind of pooling is the mean of the states at the positions that count, so they differ in a range alone. States are
summed in double precision, one after the other in the order of their positions: the sum has the same bits however the
prompt was cut into chunks, and whoever ran beside it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from octavo.execution.protocols import Int32, ProgramExecutor, StepBatch
from octavo.request.pooling import PoolingParams

Float64 = npt.NDArray[np.float64]


def _last(start: int, stop: int, num_prompt_tokens: int) -> range:
    return range(max(start, num_prompt_tokens - 1), stop)


def _all(start: int, stop: int, num_prompt_tokens: int) -> range:
    return range(start, stop)


COUNTING: dict[str, Callable[[int, int, int], range]] = {"last": _last, "mean": _all}
"""Pooling -> which of the positions `start .. stop - 1` count, of so many in the prompt."""


@dataclass(frozen=True)
class _Sum:
    """What the states that counted so far have come to; none at all: `total` is 0."""

    total: Float64 | float = 0.0
    num_positions: int = 0


@dataclass(frozen=True)
class _Slot:
    params: PoolingParams
    num_prompt_tokens: int


@dataclass
class PooledRows:
    """What came of a step, by the index of the sequence in its batch."""

    vectors: dict[int, bytes] = field(default_factory=dict)
    """Of the prompts that are finished: little-endian float32."""
    problems: dict[int, str] = field(default_factory=dict)
    """What is wrong with a request alone; it has no vector."""


class Pooler:
    """Makes the vectors of pooled requests, by their slots. Keeps of each what earlier chunks of it have come to."""

    def __init__(self, executor: ProgramExecutor) -> None:
        self._executor = executor
        self._slots: dict[int, _Slot] = {}
        self._sums: dict[int, _Sum] = {}

    def add(self, slot: int, params: PoolingParams, num_prompt_tokens: int) -> None:
        """Starts a request in a slot, of which nothing has counted yet."""
        self._slots[slot] = _Slot(params, num_prompt_tokens)
        self._sums[slot] = _Sum()

    def remove(self, slot: int) -> None:
        """Forgets the request in a slot, if there is one: a preempted one begins anew."""
        if self._slots.pop(slot, None) is not None:
            del self._sums[slot]

    def pool(self, batch: StepBatch, slots: Sequence[int]) -> PooledRows:
        """Takes in the step that the executor has just run.

        If it raises nothing has been taken in, so the same step may be run again.

        Args:
            slots: of the batch's sequences.
        """
        pooled = PooledRows()
        if not self._slots:
            return pooled
        mine = [(index, slot) for index, slot in enumerate(slots) if slot in self._slots]
        counting = {index: self._counting(batch, index, slot) for index, slot in mine}
        sums = self._add_up(counting, {index: self._sums[slots[index]] for index in counting})
        for index in counting:
            if int(batch.context_lens[index]) == self._slots[slots[index]].num_prompt_tokens:
                self._finish(index, self._slots[slots[index]], sums[index], pooled)
        self._sums |= {slots[index]: total for index, total in sums.items()}
        return pooled

    def _counting(self, batch: StepBatch, index: int, slot: int) -> Int32:
        """Rows of the batch that count, of one sequence."""
        held = self._slots[slot]
        first, stop = int(batch.positions[batch.seq_starts[index]]), int(batch.context_lens[index])
        counting = COUNTING[held.params.pooling](first, stop, held.num_prompt_tokens)
        offset = int(batch.seq_starts[index]) - first
        return np.arange(counting.start + offset, counting.stop + offset, dtype=np.int32)

    def _add_up(self, counting: dict[int, Int32], sums: dict[int, _Sum]) -> dict[int, _Sum]:
        """The sums with the states of these rows, which are fetched in pieces of at most `max_rows`."""
        totals = {index: np.array(held.total, np.float64) for index, held in sums.items()}
        rows = np.concatenate([*counting.values(), np.zeros(0, np.int32)])
        owners = [index for index, mine in counting.items() for _ in mine]
        piece = self._executor.max_rows
        for start in range(0, len(rows), piece):
            states = self._executor.hidden(rows[start : start + piece])
            for owner, state in zip(owners[start : start + piece], states, strict=True):
                totals[owner] = totals[owner] + state
        return {index: _Sum(total, sums[index].num_positions + len(counting[index])) for index, total in totals.items()}

    @staticmethod
    def _finish(index: int, slot: _Slot, held: _Sum, pooled: PooledRows) -> None:
        if slot.params.needs_every_position and held.num_positions != slot.num_prompt_tokens:
            pooled.problems[index] = "a part of its prompt failed in the step before"
            return
        vector = finished(np.asarray(held.total) / held.num_positions, slot.params)
        if np.isfinite(vector).all():
            pooled.vectors[index] = vector.astype("<f4").tobytes()
        else:
            pooled.problems[index] = "the model's hidden states hold a NaN or an infinity, so there is no vector"


def finished(mean: Float64, params: PoolingParams) -> npt.NDArray[np.float32]:
    """Cuts a mean of states, scales it to length 1, and rounds once.

    The squares are summed exactly (`math.fsum`): the libraries' own sums depend on the instruction set.
    """
    vector = mean[: params.dimensions]
    length = math.sqrt(math.fsum((vector * vector).tolist())) if params.normalize else 0.0
    if length > 0 and math.isfinite(length):
        vector = vector / length
    return vector.astype(np.float32)
