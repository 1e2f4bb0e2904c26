"""The runner: applies step plans to the persistent batch, runs the program and samples."""

from collections.abc import Callable, Sequence

import numpy as np

from octavo.execution.batch import PersistentBatch
from octavo.execution.protocols import Int32, ProgramExecutor, SampledRows, Sampler, StepBatch
from octavo.kv.spec import KVLayout
from octavo.request.outputs import LogprobRow
from octavo.scheduling.plan import NewRequestData, StepPlan, StepResult, StepTimings


class Runner:
    """A `StepExecutor` in this process: program executor + sampler over one persistent batch."""

    def __init__(
        self,
        executor: ProgramExecutor,
        sampler: Sampler,
        *,
        max_num_seqs: int,
        max_model_len: int,
        clock: Callable[[], float],
    ) -> None:
        self.layout: KVLayout = executor.layout
        self._executor = executor
        self._sampler = sampler
        self._clock = clock
        self._batch = PersistentBatch(self.layout, max_num_seqs=max_num_seqs, max_model_len=max_model_len)

    def execute(self, plan: StepPlan) -> StepResult:
        """Runs one plan; see `StepExecutor.execute`."""
        started = self._clock()
        slots = self._apply(plan)
        if not slots:
            return StepResult(step=plan.step, token_ids=())
        step = self._batch.prepare(plan, slots)
        prepared = self._clock()
        logits = self._executor.run(step.batch)
        executed = self._clock()
        sampled = self._sampler.sample(logits, step.sampling_slots)
        self._batch.append_tokens(step.sampling_slots, sampled.token_ids)
        prompt_logprobs = self._prompt_logprobs(plan, step.batch, slots) if self._batch.scored_slots else {}
        timings = StepTimings(
            prepare_s=prepared - started, execute_s=executed - prepared, sample_s=self._clock() - executed
        )
        return self._result(plan, step.sampling, sampled, prompt_logprobs, timings)

    def close(self) -> None:
        """Releases the executor's memory and threads; idempotent."""
        self._executor.close()

    def _apply(self, plan: StepPlan) -> list[int]:
        """Brings the persistent batch up to the plan; returns the slot of each planned request."""
        for request_id in (*plan.finished_request_ids, *plan.preempted_request_ids):
            slot = self._batch.remove(request_id)
            if slot is not None:
                self._sampler.remove(slot)
        slot_by_id = self._batch.slot_by_id
        for swap in plan.block_swaps:
            self._batch.swap_block(slot_by_id[swap.request_id], swap.group, swap.position, swap.block_id)
        for request in plan.new_requests:
            self._add(request)
        slots = [slot_by_id[request_id] for request_id in plan.request_ids]
        for slot, block_ids in zip(slots, plan.new_block_ids, strict=True):
            self._batch.append_blocks(slot, block_ids)
        return slots

    def _add(self, request: NewRequestData) -> None:
        slot = self._batch.add(request)
        prompt = request.token_ids[: request.num_prompt_tokens]
        output = request.token_ids[request.num_prompt_tokens :]
        self._sampler.add(slot, request.params, request.eos_token_ids, prompt, output)

    def _prompt_logprobs(self, plan: StepPlan, batch: StepBatch, slots: Sequence[int]) -> dict[str, list[LogprobRow]]:
        """Scores the prompt tokens that follow this step's prompt rows, in pieces of at most `max_rows` rows.

        position   c ........ c + s - 1          row of position p predicts token p + 1,
        scores        c + 1 ........ min(c + s, num_prompt - 1)
        """
        scored: dict[str, list[LogprobRow]] = {}
        for index, slot in enumerate(slots):
            num_logprobs = self._batch.scored_slots.get(slot)
            if num_logprobs is None:
                continue
            first = int(batch.positions[batch.seq_starts[index]])
            stop = min(int(batch.context_lens[index]) + 1, int(self._batch.num_prompt_tokens[slot]))
            targets = self._batch.tokens(slot, first + 1, stop)
            rows = batch.seq_starts[index] + np.arange(len(targets), dtype=np.int32)
            scored[plan.request_ids[index]] = self._score(rows, targets, num_logprobs)
        return scored

    def _score(self, rows: Int32, targets: Int32, num_logprobs: int) -> list[LogprobRow]:
        piece = self._executor.max_rows
        scores: list[LogprobRow] = []
        for start in range(0, len(rows), piece):
            logits = self._executor.logits(rows[start : start + piece])
            scores += self._sampler.score(logits, targets[start : start + piece], num_logprobs)
        return scores

    @staticmethod
    def _result(
        plan: StepPlan,
        sampling: Int32,
        sampled: SampledRows,
        prompt_logprobs: dict[str, list[LogprobRow]],
        timings: StepTimings,
    ) -> StepResult:
        token_ids: list[tuple[int, ...]] = [()] * len(plan.request_ids)
        for index, token_id in zip(sampling.tolist(), sampled.token_ids.tolist(), strict=True):
            if token_id >= 0:
                token_ids[index] = (token_id,)
        logprobs: list[tuple[LogprobRow, ...] | None] = []
        if sampled.logprobs:
            logprobs = [None] * len(plan.request_ids)
            for index, row in zip(sampling.tolist(), sampled.logprobs, strict=True):
                logprobs[index] = None if row is None else (row,)
        errors = {plan.request_ids[sampling[row]]: problem for row, problem in sampled.errors.items()}
        return StepResult(
            step=plan.step,
            token_ids=tuple(token_ids),
            logprobs=tuple(logprobs),
            prompt_logprobs=prompt_logprobs,
            errors=errors,
            timings=timings,
        )
