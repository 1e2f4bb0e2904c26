"""The runner: applies step plans to the persistent batch, runs the program and samples."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from octavo.errors import OctavoError, WorkerLostError
from octavo.execution.batch import Drafts, PersistentBatch, PreparedStep
from octavo.execution.drafting import Drafting
from octavo.execution.isolation import isolate
from octavo.execution.pooling import PooledRows, Pooler
from octavo.execution.protocols import (
    Int32,
    OpTimer,
    ProgramExecutor,
    Proposer,
    RanStep,
    SampledRows,
    Sampler,
    StepBatch,
)
from octavo.kv.spec import KVLayout
from octavo.request.outputs import LogprobRow
from octavo.request.profile import Span, StepProfile
from octavo.scheduling.plan import NewRequestData, StepPlan, StepResult, StepTimings

log = logging.getLogger(__name__)

MAX_LOST_PROBES = 8
"""After so many steps in a row in which nobody's part could be run, nor a token of nobody's after it, the executor
counts as lost. Fewer may be due to a shortage that passes."""


@dataclass(frozen=True)
class _Part:
    """What came of a part of a step, mostly the whole."""

    sampling: list[int]
    """Places in the plan of the sequences that yield tokens, one per sampled row."""
    sampled: SampledRows
    prompt_logprobs: dict[str, list[LogprobRow]]
    pooled: PooledRows
    """By place in the plan."""
    broken: dict[int, int]
    """Place -> first position that came out as no number."""
    timings: StepTimings
    prepared_s: float
    """When all was ready for the program."""


class Runner:
    """A `StepExecutor` in this process: program executor + sampler over one persistent batch.

    What raises anywhere in a step is traced to the requests that cause it (`isolate`): they end with an error, the
    others have their tokens. That a part may be run twice is safe: each row writes its own slots with the same bits.
    """

    def __init__(
        self,
        executor: ProgramExecutor,
        sampler: Sampler,
        *,
        max_num_seqs: int,
        max_model_len: int,
        clock: Callable[[], float],
        proposer: Proposer | None = None,
        op_timer: OpTimer | None = None,
    ) -> None:
        """
        Args:
            proposer: guesses what comes next, where plans have room for drafts; None: they have none.
            op_timer: of the executor and the proposer's; None: they time no ops.
        """
        self.layout: KVLayout = executor.layout
        self._executor = executor
        self._sampler = sampler
        self._clock = clock
        self._op_timer = op_timer
        self._pooler = Pooler(executor)
        self._batch = PersistentBatch(self.layout, max_num_seqs=max_num_seqs, max_model_len=max_model_len)
        self._drafting = None if proposer is None else Drafting(proposer, sampler, self._batch.held)
        self._requests: dict[int, NewRequestData] = {}
        """By slot, those that the sampler holds, as they came; tokens sampled since stand in the batch."""
        self._num_lost_probes = 0

    def execute(self, plan: StepPlan) -> StepResult:
        """Runs one plan; see `StepExecutor.execute`.

        Raises:
            WorkerLostError: nothing could be run for a number of steps.
        """
        if plan.profiled and self._op_timer is not None:
            self._op_timer.start()
        started = self._clock()
        errors = self._apply(plan)
        applied = self._clock()
        slot_by_id = self._batch.slot_by_id
        places = [place for place, request_id in enumerate(plan.request_ids) if request_id not in errors]
        slots = {place: slot_by_id[plan.request_ids[place]] for place in places}
        drafts, propose_s = None, 0.0
        if self._drafting is not None:
            drafts = self._drafting.propose(plan, slots)
            propose_s = self._clock() - applied
        parts: list[_Part] = []

        def attempt(some: Sequence[int]) -> None:
            """Blocks are copied once: whoever was copied to may have written behind the copy since."""
            since = self._clock() if parts else started + propose_s
            chosen = drafts and {place: drafts[place] for place in some if place in drafts}
            parts.append(self._run(plan, some, [slots[place] for place in some], chosen, since, copies=not parts))

        def give_up(place: int, error: Exception) -> None:
            errors[plan.request_ids[place]] = _problem(plan.request_ids[place], error)

        if places:
            isolate(places, attempt, give_up)
            self._see_to_the_executor(is_barren=not parts)
        result = _result(plan, parts, drafts or {}, errors, propose_s)
        if not plan.profiled:
            return result
        before = [Span("apply", started, applied)]
        before += [Span("propose", applied, applied + propose_s)] if propose_s else []
        return msgspec.structs.replace(result, profile=self._profile(before, parts))

    def _profile(self, before: list[Span], parts: Sequence[_Part]) -> StepProfile:
        """Of the step that has just run, from spans of what came before its parts, and what these say."""
        ops = {} if self._op_timer is None else self._op_timer.stop()
        spans = [*before]
        for part in parts:
            spans += _spans(part, spans[-1].end_s)
        return StepProfile(thread=threading.get_native_id(), spans=tuple(spans), ops=ops)

    def close(self) -> None:
        """Releases the executor's memory and threads, and the proposer's; idempotent."""
        if self._drafting is not None:
            self._drafting.close()
        self._executor.close()

    # ---- requests come and go

    def _apply(self, plan: StepPlan) -> dict[str, str]:
        """Brings the persistent batch up to the plan; returns what is wrong with requests that could not be taken in,
        now or before."""
        for request_id in (*plan.finished_request_ids, *plan.preempted_request_ids):
            self._remove(request_id)
        slot_by_id = self._batch.slot_by_id
        for swap in plan.block_swaps:
            if swap.request_id in slot_by_id:
                self._batch.swap_block(slot_by_id[swap.request_id], swap.group, swap.position, swap.block_id)
        errors: dict[str, str] = {}
        for request in plan.new_requests:
            try:
                self._add(request)
            except Exception as error:  # its client is told
                self._remove(request.request_id)
                errors[request.request_id] = _problem(request.request_id, error)
        columns = zip(plan.request_ids, plan.new_block_ids, plan.num_computed_tokens, strict=True)
        for request_id, block_ids, num_computed in columns:
            if request_id in slot_by_id:
                self._batch.append_blocks(slot_by_id[request_id], block_ids, num_computed)
            elif request_id not in errors:  # planned ahead, before it was known
                errors[request_id] = "it failed in the step before"
        return errors

    def _add(self, request: NewRequestData) -> None:
        slot = self._batch.add(request)
        if request.pooling is not None:
            self._pooler.add(slot, request.pooling, request.num_prompt_tokens)
            return
        prompt = request.token_ids[: request.num_prompt_tokens]
        output = request.token_ids[request.num_prompt_tokens :]
        self._sampler.add(slot, request.params, request.eos_token_ids, prompt, output)
        self._requests[slot] = request
        if self._drafting is not None:
            self._drafting.add(slot, request)

    def _remove(self, request_id: str) -> None:
        """Lets go of a request, if it is held."""
        slot = self._batch.remove(request_id)
        if slot is not None:
            self._pooler.remove(slot)
            if self._drafting is not None:
                self._drafting.remove(slot)
        if slot is not None and self._requests.pop(slot, None) is not None:
            self._sampler.remove(slot)

    def _see_to_the_executor(self, *, is_barren: bool) -> None:
        """After a step in which nobody's part could be run: finds out whether the requests or the executor are at
        fault. Bad requests may come alone, one after the other, and must not end the engine."""
        if not is_barren or self._can_run():
            self._num_lost_probes = 0
            return
        self._num_lost_probes += 1
        if self._num_lost_probes == MAX_LOST_PROBES:
            raise WorkerLostError(
                f"in {MAX_LOST_PROBES} steps in a row nothing could be run for anybody; the log says why"
            )

    def _can_run(self) -> bool:
        """Runs one token of nobody's, which goes into the null block."""
        one, zero = np.ones(1, np.int32), np.zeros(1, np.int32)
        num_groups = len(self.layout.groups)
        probe = StepBatch(
            token_ids=zero,
            positions=zero,
            seq_starts=np.array([0, 1], np.int32),
            context_lens=one,
            block_tables=np.zeros((num_groups, 1, 1), np.int32),
            slot_mapping=np.zeros((num_groups, 1), np.int32),
            logit_rows=zero,
        )
        try:
            self._executor.run(probe)
        except Exception:
            log.exception("the executor cannot run a single token")
            return False
        return True

    # ---- a step, or a part of it

    def _run(
        self,
        plan: StepPlan,
        places: Sequence[int],
        slots: list[int],
        drafts: Drafts | None,
        started: float,
        *,
        copies: bool,
    ) -> _Part:
        """Runs what stands at some places of the plan. If it raises, all is as before but for slots of the KV memory
        that another run of these places will write again."""
        step = self._batch.prepare(plan, places, slots, drafts)
        if not copies:
            step.batch.block_copies = ()
        if step.drafts is None:
            self._sampler.prepare(step.sampling_slots)
        else:
            self._sampler.prepare(step.sampling_slots, step.drafts)
        prepared = self._clock()
        logits = self._executor.run(step.batch)
        broken = self._first_broken(step.batch, places)
        executed = self._clock()
        try:
            if step.drafts is None:
                sampled = self._sampler.sample(logits, step.sampling_slots)
            else:
                sampled = self._sampler.verify(logits, step.sampling_slots, step.drafts)
            self._batch.append_tokens(step.sampling_slots, sampled.token_ids)
            scored = self._prompt_logprobs(plan, step.batch, places, slots) if self._batch.scored_slots else {}
            pooled = self._pooler.pool(step.batch, slots)  # the last, for what it has taken in it does not give back
        except Exception:
            self._undo_sampling(step)
            raise
        sampled_s = self._clock() - executed
        draft_s = 0.0
        if self._drafting is not None:
            self._drafting.ran(RanStep(step.batch, slots, step.sampling, sampled.token_ids, self._executor))
            draft_s = self._clock() - executed - sampled_s
        timings = StepTimings(
            prepare_s=prepared - started, execute_s=executed - prepared, sample_s=sampled_s, draft_s=draft_s
        )
        sampling = [places[sequence] for sequence in step.sampling.tolist()]
        return _Part(sampling, sampled, scored, _at_places(pooled, places), broken, timings, prepared)

    def _first_broken(self, batch: StepBatch, places: Sequence[int]) -> dict[int, int]:
        """Place -> first position without a number. At rows with logits the sampler looks, so what is said of a token
        does not depend on how its request was cut."""
        if len(batch.logit_rows) == len(batch.token_ids):
            return {}
        rows = np.setdiff1d(self._executor.broken_rows(), batch.logit_rows, assume_unique=True)
        sequences = np.searchsorted(batch.seq_starts, rows, side="right") - 1
        found = zip(sequences.tolist(), batch.positions[rows].tolist(), strict=True)
        return {places[sequence]: position for sequence, position in reversed(list(found))}

    def _undo_sampling(self, step: PreparedStep) -> None:
        """Nobody knows how far it came: makes the sampling state of all slots anew from the tokens known before. A slot
        for which that cannot be done is left empty, so that nothing can be sampled for its request."""
        first = step.first_rows()
        slots = step.sampling_slots[first]
        self._batch.take_back(slots, step.batch.positions[step.batch.logit_rows[first]] + 1)
        for slot in slots.tolist():
            request = self._requests.pop(slot, None)
            if request is None:
                continue
            try:
                self._restart_sampling(slot, request)
            except Exception:
                log.exception("request %s cannot be sampled any more", request.request_id)
            else:
                self._requests[slot] = request

    def _restart_sampling(self, slot: int, request: NewRequestData) -> None:
        prompt = self._batch.tokens(slot, 0, request.num_prompt_tokens).tolist()
        output = self._batch.tokens(slot, request.num_prompt_tokens, int(self._batch.num_tokens[slot])).tolist()
        self._sampler.remove(slot)
        self._sampler.add(slot, request.params, request.eos_token_ids, prompt, output)

    def _prompt_logprobs(
        self, plan: StepPlan, batch: StepBatch, places: Sequence[int], slots: Sequence[int]
    ) -> dict[str, list[LogprobRow]]:
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
            scored[plan.request_ids[places[index]]] = self._score(rows, targets, num_logprobs)
        return scored

    def _score(self, rows: Int32, targets: Int32, num_logprobs: int) -> list[LogprobRow]:
        piece = self._executor.max_rows
        scores: list[LogprobRow] = []
        for start in range(0, len(rows), piece):
            logits = self._executor.logits(rows[start : start + piece])
            scores += self._sampler.score(logits, targets[start : start + piece], num_logprobs)
        return scores


def _spans(part: _Part, begin_s: float) -> list[Span]:
    """What a part did, one thing after the other; `begin_s` is when it may have begun."""
    timings, spans = part.timings, [Span("build batch", begin_s, part.prepared_s)]
    for name, seconds in (("forward", timings.execute_s), ("sample", timings.sample_s), ("follow", timings.draft_s)):
        if seconds:
            spans.append(Span(name, spans[-1].end_s, spans[-1].end_s + seconds))
    return spans


def _at_places(pooled: PooledRows, places: Sequence[int]) -> PooledRows:
    return PooledRows(
        {places[index]: vector for index, vector in pooled.vectors.items()},
        {places[index]: problem for index, problem in pooled.problems.items()},
    )


def _problem(request_id: str, error: Exception) -> str:
    """What the client is told. Only what was written for users goes there, the rest into the log."""
    log.error("request %s ends: its part of a step raised", request_id, exc_info=error)
    if isinstance(error, OctavoError):
        return str(error)
    return f"the engine failed at this request ({type(error).__name__}); its log says more"


def _tokens(plan: StepPlan, parts: Sequence[_Part]) -> list[tuple[int, ...]]:
    """By place in the plan, what was drawn there."""
    token_ids: list[tuple[int, ...]] = [()] * len(plan.request_ids)
    for part in parts:
        for place, token_id in zip(part.sampling, part.sampled.token_ids.tolist(), strict=True):
            if token_id >= 0:
                token_ids[place] += (token_id,)
    return token_ids


def _result(
    plan: StepPlan,
    parts: Sequence[_Part],
    drafts: Drafts,
    errors: dict[str, str],
    propose_s: float,
) -> StepResult:
    """The parts in one piece.

    Args:
        errors: of requests that have no part, by id.
        propose_s: what it took to guess, before the first part.
    """
    token_ids = _tokens(plan, parts)
    completed: list[str] = []
    unfit: list[str] = []
    logprobs: list[tuple[LogprobRow, ...] | None] = [None] * len(plan.request_ids)
    prompt_logprobs: dict[str, list[LogprobRow]] = {}
    vectors: dict[str, bytes] = {}
    for part in parts:
        if part.sampled.logprobs:
            for place, listed in zip(part.sampling, part.sampled.logprobs, strict=True):
                if listed is not None:
                    logprobs[place] = (*(logprobs[place] or ()), listed)
        for place, position in part.broken.items():
            token_ids[place] = ()
            errors[plan.request_ids[place]] = f"the model gives no number (NaN) for the token at position {position}"
        completed += [plan.request_ids[part.sampling[row]] for row in part.sampled.completed]
        unfit += [plan.request_ids[part.sampling[row]] for row in part.sampled.unfit]
        for row, problem in part.sampled.errors.items():
            errors.setdefault(plan.request_ids[part.sampling[row]], problem)
        for place, problem in part.pooled.problems.items():
            errors.setdefault(plan.request_ids[place], problem)
        prompt_logprobs |= part.prompt_logprobs
        vectors |= {plan.request_ids[place]: vector for place, vector in part.pooled.vectors.items()}
    return StepResult(
        step=plan.step,
        token_ids=tuple(token_ids),
        num_draft_tokens=tuple([len(drafts.get(place, ())) for place in range(len(token_ids))]) if drafts else (),
        logprobs=tuple(logprobs) if any(part.sampled.logprobs for part in parts) else (),
        prompt_logprobs=prompt_logprobs,
        completed_request_ids=tuple(completed),
        vectors={request_id: vector for request_id, vector in vectors.items() if request_id not in errors},
        errors=errors,
        unfit_request_ids=tuple(unfit),
        timings=_sum([StepTimings(draft_s=propose_s), *[part.timings for part in parts]]),
    )


def _sum(timings: Sequence[StepTimings]) -> StepTimings:
    return StepTimings(
        prepare_s=sum(each.prepare_s for each in timings),
        execute_s=sum(each.execute_s for each in timings),
        sample_s=sum(each.sample_s for each in timings),
        draft_s=sum(each.draft_s for each in timings),
    )
