"""Any fault at any stage among any requests: a mark in the prompt says what goes wrong, and when."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from octavo.errors import WorkerLostError
from octavo.execution.protocols import Float32, Int32, ProgramExecutor, SampledRows, Sampler, StepBatch
from octavo.request.params import SamplingParams
from tests.equality.faults import MARK, NAN_TOKEN, SoundExecutor, SoundSampler, known_tokens

MARKS = {
    "taken in": 452,
    "kernel, before": 453,
    "kernel, after": 457,
    "NaN in its row": 462,
    "NaN from the start": 495,
    "sampler, before": 496,
    "sampler, after": 497,
    "text": MARK,
}
"""Stage -> the token that brings a fault about there: when it runs; for samplers, when as many tokens have been drawn
as the prompt holds marks; for texts, when it is answered. The workload lacks them."""
MOST_RUNS = 3000
"""A test that gets so far would never end."""


class MarkedExecutor(SoundExecutor):
    """Fails at the marks of its stages."""

    def __init__(self, inner: ProgramExecutor) -> None:
        super().__init__(inner)
        self.num_runs = 0

    def run(self, batch: StepBatch) -> Float32:
        self.num_runs += 1
        if self.num_runs > MOST_RUNS:
            raise WorkerLostError("this goes on for ever")
        self._raise_at("kernel, before", batch)
        token_ids, known = batch.token_ids.copy(), known_tokens(batch)
        for row in np.flatnonzero(known == MARKS["NaN from the start"]):
            token_ids[batch.seq_starts[np.searchsorted(batch.seq_starts, row, side="right") - 1]] = NAN_TOKEN
        token_ids[known == MARKS["NaN in its row"]] = NAN_TOKEN
        self.num_faults += int(NAN_TOKEN in token_ids)
        logits = self.inner.run(replace(batch, token_ids=token_ids))
        self._raise_at("kernel, after", batch)
        return logits

    def _raise_at(self, stage: str, batch: StepBatch) -> None:
        if MARKS[stage] in known_tokens(batch):
            self.num_faults += 1
            raise ValueError(stage)


class MarkedSampler(SoundSampler):
    """Fails at the marks of its stages, from that output on."""

    def __init__(self, inner: Sampler) -> None:
        super().__init__(inner)
        self._prompt_by_slot: dict[int, Sequence[int]] = {}
        self._num_drawn: dict[int, int] = {}

    def add(
        self,
        slot: int,
        params: SamplingParams,
        eos_token_ids: Sequence[int],
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
    ) -> None:
        if MARKS["taken in"] in prompt_token_ids:
            self.num_faults += 1
            raise KeyError("taken in")
        super().add(slot, params, eos_token_ids, prompt_token_ids, output_token_ids)
        self._prompt_by_slot[slot] = prompt_token_ids
        self._num_drawn[slot] = len(output_token_ids)

    def draws(self, slots: Int32, draw: Callable[[], SampledRows]) -> SampledRows:
        self._raise_at("sampler, before", slots)
        rows = draw()
        self._raise_at("sampler, after", slots)
        for slot, token_id in zip(slots.tolist(), rows.token_ids.tolist(), strict=True):
            self._num_drawn[slot] += token_id >= 0
        return rows

    def _raise_at(self, stage: str, slots: Int32) -> None:
        """A run of rows for drafts fails if any of them could be the one."""
        for slot, num_rows in zip(*(column.tolist() for column in np.unique(slots, return_counts=True)), strict=True):
            prompt = self._prompt_by_slot[slot]
            if MARKS[stage] in prompt and self._num_drawn[slot] + num_rows > prompt.count(MARKS[stage]):  # type: ignore[attr-defined]
                self.num_faults += 1
                raise MemoryError(stage)
