"""Step records against an oracle that looks at the requests themselves, for arbitrary crowds."""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from octavo.config import SchedulerConfig
from octavo.engine.core import EngineCore
from octavo.engine.step_telemetry.recorder import BEAT_S, StepRecorder
from octavo.execution.scripted import ScriptedExecutor
from octavo.kv.manager import KVManager
from octavo.request.step_record import StepRecord
from octavo.scheduling.draft_counts import FixedDraftCounts
from octavo.scheduling.plan import StepPlan
from octavo.scheduling.request_state import RequestStatus
from octavo.scheduling.scheduler import Scheduler
from tests.scheduling.harness import VOCAB_SIZE, make_layout, make_request


def variance(lengths: list[int]) -> float:
    """Of a population, by its definition."""
    if not lengths:
        return 0.0
    mean = Fraction(sum(lengths), len(lengths))
    return float(sum((length - mean) ** 2 for length in lengths) / len(lengths))


class Watched(Scheduler):
    """Notes what each plan must look like in a record."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.expected: deque[dict[str, Any]] = deque()
        self.lengths: dict[str, int] = {}
        self.num_sat_out = 0

    def schedule(self, now_s: float) -> StepPlan | None:
        """See `Scheduler.schedule`."""
        plan = super().schedule(now_s)
        if plan is not None:
            self.expected.append(self._figures(plan))
        return plan

    def _figures(self, plan: StepPlan) -> dict[str, Any]:
        self.lengths |= {new.request_id: len(new.token_ids) for new in plan.new_requests}
        live = [request for name in self.live_ids() if (request := self.live(name)) is not None]
        prompts = {request.request_id: request.num_prompt_tokens for request in live}
        drafts = plan.num_draft_tokens or (0,) * len(plan.request_ids)
        rows = [
            (name, computed, scheduled - drafted)
            for name, computed, scheduled, drafted in zip(
                plan.request_ids, plan.num_computed_tokens, plan.num_scheduled_tokens, drafts, strict=True
            )
        ]
        prefill = [row for row in rows if row[2] > 1 or row[1] < prompts[row[0]]]
        contexts = [computed + known for name, computed, known in rows if (name, computed, known) not in prefill]
        left_out = [request for request in live if request.request_id not in plan.request_ids]
        self.num_sat_out += sum(
            request.status is RequestStatus.RUNNING and request.max_remaining_tokens > request.num_pending
            for request in left_out
        )
        waiting = [request for request in live if request.status is not RequestStatus.RUNNING]
        new = [len(request.token_ids) for request in waiting if request.status is not RequestStatus.PREEMPTED]
        fallen = [len(request.token_ids) for request in waiting if request.status is RequestStatus.PREEMPTED]
        return {
            "scheduled": {
                "num_prefill_requests": len(prefill),
                "sum_prefill_tokens": sum(known for _, _, known in prefill),
                "var_prefill_length": variance([self.lengths[name] for name, _, _ in prefill]),
                "sum_prefill_kv_tokens": sum(computed for _, computed, _ in prefill),
                "num_decode_requests": len(contexts),
                "sum_decode_kv_tokens": sum(contexts),
                "var_decode_kv_tokens": variance(contexts),
            },
            "queued": {
                "num_prefill_requests": len(new),
                "sum_prefill_tokens": sum(new),
                "var_prefill_length": variance(new),
                "num_decode_requests": len(fallen),
                "sum_decode_kv_tokens": sum(fallen),
                "var_decode_kv_tokens": variance(fallen),
            },
            "pairs": sum(computed + row + 1 for _, computed, known in prefill for row in range(known)),
            "step": plan.step,
            "new": len(plan.new_requests),
            "preempted": len(plan.preempted_request_ids),
            "running": len(live) - len(waiting),
        }


def figures(record: StepRecord) -> dict[str, Any]:
    scheduled, queued, detail = record.scheduled_requests, record.queued_requests, record.octavo
    return {
        "scheduled": {name: pytest.approx(getattr(scheduled, name)) for name in scheduled.__struct_fields__},
        "queued": {name: pytest.approx(getattr(queued, name)) for name in queued.__struct_fields__},
        "pairs": detail.prefill_attention_pairs,
        "step": detail.step,
        "new": detail.num_new_requests,
        "preempted": detail.num_preempted_requests,
        "running": detail.num_running_requests,
    }


def half_right(token_ids: Sequence[int], upcoming: Sequence[int]) -> list[int]:
    """Drafts of which every second one is wrong."""
    return [token if place % 2 == 0 else token + 1 for place, token in enumerate(upcoming)]


@dataclass
class Kept:
    """A sink that keeps all."""

    wants_beats: bool = False
    records: list[StepRecord] = field(default_factory=list)
    closed: bool = False

    def put(self, record: StepRecord) -> None:
        self.records.append(record)

    def close(self) -> None:
        self.closed = True


@dataclass
class Crowd:
    """A core under watch."""

    num_blocks: int = 24
    ahead: bool = False
    drafts: int = 0
    kept: Kept = field(default_factory=Kept)

    def __post_init__(self) -> None:
        layout = make_layout(self.num_blocks)
        config = SchedulerConfig(
            max_num_seqs=6,
            max_num_batched_tokens=16,
            admission_conservativeness=0.0,
            async_scheduling=self.ahead,
        )
        counts = FixedDraftCounts(self.drafts, most_per_step=64) if self.drafts else None
        self.scheduler = Watched(config, KVManager(layout), 64, draft_counts=counts)
        executor = ScriptedExecutor(
            layout,
            vocab_size=VOCAB_SIZE,
            max_in_flight=self.scheduler.max_in_flight,
            drafts=half_right,
        )
        self.now_s = 0.0
        recorder = StepRecorder([self.kept], worker_id="me")
        self.core = EngineCore(self.scheduler, executor, self.tick, recorder=recorder)

    def tick(self) -> float:
        self.now_s += 0.001
        return self.now_s

    def run(self, requests: list[tuple[int, int]], aborts: Collection[int] = ()) -> None:
        """Requests of (prompt, answer) lengths arrive two a step; some leave in mid-flight."""
        todo = deque(enumerate(requests))
        while todo or self.core.has_work:
            for _ in range(2):
                if todo:
                    number, (prompt, answer) = todo.popleft()
                    self.core.add(make_request(f"r{number}", prompt, answer))
                    if number in aborts:
                        self.core.step()
                        self.core.abort([f"r{number}"])
            self.core.step()


lengths = st.tuples(st.integers(1, 40), st.integers(1, 20))


@settings(max_examples=60, deadline=None)
@given(
    requests=st.lists(lengths, min_size=1, max_size=12),
    num_blocks=st.sampled_from([16, 24, 60]),
    ahead=st.booleans(),
    drafts=st.sampled_from([0, 2]),
    aborts=st.sets(st.integers(0, 11), max_size=3),
)
def test_every_record_is_what_the_requests_were(
    requests: list[tuple[int, int]], num_blocks: int, ahead: bool, drafts: int, aborts: set[int]
) -> None:
    crowd = Crowd(num_blocks=num_blocks, ahead=ahead, drafts=drafts)
    crowd.run(requests, aborts)
    records = crowd.kept.records
    assert [figures(record) for record in records] == list(crowd.scheduler.expected)
    assert [record.counter_id for record in records] == list(range(len(records)))
    assert {record.worker_id for record in records} == {"me"}
    load = crowd.core.load()
    num_run = sum(
        record.scheduled_requests.sum_prefill_tokens
        + record.scheduled_requests.num_decode_requests
        + record.octavo.num_draft_tokens
        for record in records
    )
    assert num_run == load.counters["computed_tokens"] == load.tallies["iteration_tokens"].total
    assert sum(load.tallies["iteration_tokens"].counts) == len(records) == load.counters["steps"]
    assert sum(record.octavo.num_accepted_draft_tokens for record in records) == load.counters["accepted_draft_tokens"]
    assert sum(record.octavo.num_preempted_requests for record in records) == load.counters["preemptions"]
    assert load.step == records[-1]


def test_times_add_up_without_overlap() -> None:
    crowd = Crowd()
    crowd.run([(20, 9), (30, 5), (3, 12)])
    parts = ("schedule_s", "prepare_s", "execute_s", "sample_s", "draft_s", "update_s", "publish_s")
    counters = crowd.core.load().counters
    for part in parts:
        spent = sum(getattr(record.octavo, part) for record in crowd.kept.records)
        assert spent == pytest.approx(counters[part]), part
    walls = sum(record.wall_time for record in crowd.kept.records)
    between = sum(record.octavo.between_s for record in crowd.kept.records)
    assert walls == pytest.approx(crowd.core.load().tallies["step_duration_seconds"].total)
    assert 0 < walls + between <= crowd.now_s
    assert all(record.wall_time > 0 for record in crowd.kept.records)


def test_stalls_are_counted_for_each_request_that_sits_out() -> None:
    crowd = Crowd(num_blocks=16, ahead=True)  # nobody falls before the step in flight has landed
    crowd.run([(10, 20), (10, 20), (12, 20), (9, 20)])
    assert crowd.core.load().counters["stalls"] == crowd.scheduler.num_sat_out > 0


def test_an_engine_that_rests_gives_signs_of_life_to_those_that_want_them() -> None:
    crowd = Crowd(kept=Kept(wants_beats=True))
    assert crowd.core.patience_s() == 0  # the first is due at once
    crowd.core.step()
    assert [record.wall_time for record in crowd.kept.records] == [0.0]
    patience_s = crowd.core.patience_s()
    assert patience_s is not None and 0 < patience_s <= BEAT_S
    crowd.core.step()
    assert len(crowd.kept.records) == 1
    crowd.now_s += BEAT_S
    crowd.core.step()
    beat = crowd.kept.records[-1]
    assert (len(crowd.kept.records), beat.counter_id, beat.octavo.step) == (2, 1, -1)
    assert beat.scheduled_requests.num_prefill_requests == beat.scheduled_requests.num_decode_requests == 0
    crowd.run([(5, 2)])
    assert [record.counter_id for record in crowd.kept.records] == list(range(len(crowd.kept.records)))
    crowd.core.close()
    assert crowd.kept.closed


def test_nobody_who_wants_no_signs_of_life_wakes_the_engine() -> None:
    crowd = Crowd()
    assert crowd.core.patience_s() is None
    crowd.core.step()
    assert crowd.kept.records == []
