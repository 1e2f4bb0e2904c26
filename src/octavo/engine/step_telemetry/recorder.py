"""Writes each step down, as it goes from plan to result."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from octavo.engine.step_telemetry.composition import Composer, Composition
from octavo.engine.step_telemetry.sink import StepSink
from octavo.request.step_record import QueuedFigures, ScheduledFigures, StepDetail, StepRecord
from octavo.request.tally import Tally, tally
from octavo.scheduling.plan import StepPlan, StepResult

BEAT_S = 1.0
"""An engine that rests gives a sign of life so often."""
TOKEN_BOUNDS = tuple(2**power for power in range(15))
"""vLLM's for tokens of a step: 1 to 16384."""
SECOND_BOUNDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1, 1.5, 2.5, 5, 10, 20, 40, 80),
)


@dataclass(frozen=True, slots=True)
class Landing:
    """When a step came to its end, on the core's clock."""

    landed_s: float
    """Its result was there."""
    updated_s: float
    """It was taken in."""
    ended_s: float
    """What has changed in the cache was handed on."""
    has_more: bool
    """Whether the engine has something to do."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """A step in flight."""

    composition: Composition
    queued: QueuedFigures
    num_running: int
    num_free_blocks: int
    started_s: float
    planned_s: float


class StepRecorder:
    """One per engine core, in its thread. What nobody follows costs a few sums per step."""

    def __init__(
        self, sinks: Sequence[StepSink] = (), *, worker_id: str = "", wall_clock: Callable[[], float] | None = None
    ) -> None:
        """
        Args:
            sinks: who follows; this recorder closes them.
            worker_id: of this start of the engine.
            wall_clock: Unix seconds; None: records have no time of day.
        """
        self._sinks = tuple(sinks)
        self._beating = tuple(sink for sink in sinks if sink.wants_beats)
        self._worker_id = worker_id
        self._wall_clock = wall_clock or _no_time
        self._composer = Composer()
        self._planned: deque[_Planned] = deque()
        self._num_records = 0
        self._last_end_s: float | None = None
        self._is_busy = False
        """Whether there was something to do at the end of the last step."""
        self.beat_due_s: float | None = float("-inf") if self._beating else None
        """When the next sign of life is due, if no step ends before; None: nobody wants any."""
        self.newest: StepRecord | None = None
        """Of the last step that has landed; None: there was none."""
        self._num_tokens, self._seconds = tally(TOKEN_BOUNDS), tally(SECOND_BOUNDS)

    def planned(
        self, plan: StepPlan, surroundings: tuple[QueuedFigures, int, int], started_s: float, planned_s: float
    ) -> None:
        """A step has been planned between these two times.

        Args:
            surroundings: as `Scheduler.surroundings` has them.
        """
        self._planned.append(_Planned(self._composer.compose(plan), *surroundings, started_s, planned_s))

    def landed(self, plan: StepPlan, result: StepResult, landing: Landing) -> None:
        """The oldest step that was planned has come to its end."""
        note, before_s = self._planned.popleft(), self._last_end_s
        begin_s = note.started_s if before_s is None else max(note.started_s, before_s)
        between_s = 0.0 if before_s is None or not self._is_busy else max(0.0, note.started_s - before_s)
        self._last_end_s, self._is_busy = landing.ended_s, landing.has_more
        wall_time = landing.ended_s - begin_s
        self._num_tokens.add(plan.num_known_tokens + sum(result.num_draft_tokens))
        self._seconds.add(wall_time)
        self.newest = record = StepRecord(
            worker_id=self._worker_id,
            counter_id=self._next_number(),
            wall_time=wall_time,
            scheduled_requests=note.composition.scheduled,
            queued_requests=note.queued,
            octavo=_detail(plan, result, note, landing, between_s, self._wall_clock()),
        )
        for sink in self._sinks:
            sink.put(record)
        if self._beating:
            self.beat_due_s = landing.ended_s + BEAT_S

    def beat(self, queued: QueuedFigures, now_s: float) -> None:
        """Gives a sign of life, if one is due; for an engine that has nothing to step."""
        if self.beat_due_s is None or now_s < self.beat_due_s:
            return
        self.beat_due_s = now_s + BEAT_S
        record = StepRecord(
            worker_id=self._worker_id,
            counter_id=self._next_number(),
            scheduled_requests=ScheduledFigures(),
            queued_requests=queued,
            octavo=StepDetail(ended_s=self._wall_clock()),
        )
        for sink in self._beating:
            sink.put(record)

    def tallies(self) -> Mapping[str, Tally]:
        """Of all steps so far: `iteration_tokens`, and `step_duration_seconds`, which is the wall time."""
        return {"iteration_tokens": self._num_tokens.copy(), "step_duration_seconds": self._seconds.copy()}

    def close(self) -> None:
        """Closes the sinks. Idempotent."""
        for sink in self._sinks:
            sink.close()

    def _next_number(self) -> int:
        self._num_records += 1
        return self._num_records - 1


def _detail(
    plan: StepPlan, result: StepResult, note: _Planned, landing: Landing, between_s: float, now_s: float
) -> StepDetail:
    timings = result.timings
    num_drafts = sum(result.num_draft_tokens)
    accepted = sum([max(0, len(tokens) - 1) for tokens in result.token_ids]) if num_drafts else 0
    return StepDetail(
        step=plan.step,
        ended_s=now_s,
        schedule_s=note.planned_s - note.started_s,
        prepare_s=timings.prepare_s,
        execute_s=timings.execute_s,
        sample_s=timings.sample_s,
        draft_s=timings.draft_s,
        update_s=landing.updated_s - landing.landed_s,
        publish_s=landing.ended_s - landing.updated_s,
        between_s=between_s,
        prefill_attention_pairs=note.composition.prefill_attention_pairs,
        num_sampled_requests=len(plan.request_ids) - result.token_ids.count(()) + len(result.vectors),
        num_grammar_requests=note.composition.num_grammar_requests,
        num_draft_tokens=num_drafts,
        num_accepted_draft_tokens=accepted,
        num_new_requests=len(plan.new_requests),
        num_preempted_requests=len(plan.preempted_request_ids),
        num_running_requests=note.num_running,
        num_free_blocks=note.num_free_blocks,
        num_copied_blocks=len(plan.block_copies),
    )


def _no_time() -> float:
    return 0.0
