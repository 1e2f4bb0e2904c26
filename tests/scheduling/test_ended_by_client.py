"""Requests that their client ends, for it has found a stop string: their ledgers add up, whatever runs, waits or was
lost at that moment."""

import random

import pytest

from octavo.request.outputs import FinishReason
from octavo.scheduling.request_state import RequestStatus, SchedulerRequest
from tests.scheduling.closed_ledger import check_closed
from tests.scheduling.draft_scripts import half_right
from tests.scheduling.harness import Engine, make_request


def end(engine: Engine, request: SchedulerRequest) -> int:
    """Ends it; returns what it ran for nothing."""
    assert engine.scheduler.end(request.request_id, engine.now_s)
    stats = request.ledger(engine.now_s)
    check_closed(stats, FinishReason.STOP)
    return stats.num_overrun_tokens


@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_step_in_flight_is_overrun(ahead: bool, drafts: int) -> None:
    engine = Engine(async_scheduling=ahead, num_drafts=drafts, drafts=half_right)
    engine.add(make_request("a", 6, max_tokens=40))
    while len(engine.tokens["a"]) < 3:
        engine.step()
    request = engine.scheduler.live("a")
    assert request is not None
    while engine.plan_ahead():
        pass
    assert len(engine.in_flight) == (2 if ahead else 1)
    assert end(engine, request) == len(engine.in_flight)
    while engine.in_flight:
        engine.land()
    engine.check()


@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_at_any_time(ahead: bool, drafts: int, seed: int) -> None:
    """Little memory: some are ended while they are preempted, or run again what they have lost."""
    rng = random.Random(seed)
    engine = Engine(
        num_blocks=14, max_num_seqs=4, max_num_batched_tokens=10, async_scheduling=ahead, num_drafts=drafts,
        drafts=half_right,
    )  # fmt: skip
    states, overrun = set[RequestStatus](), 0
    for number in range(60):
        engine.add(make_request(f"r{number}", [1, 2, 3, 4, number % 5] * rng.choice([1, 2]), max_tokens=40))
        for _ in range(rng.choice([4, 9, 20])):
            if not engine.plan_ahead():
                if not engine.in_flight:
                    break
                engine.land()
            if rng.random() < 0.1:
                live = [engine.scheduler.live(name) for name in engine.scheduler.live_ids()]
                begun = [request for request in live if request is not None and request.num_output_tokens]
                if begun:
                    request = max(begun, key=lambda one: (one.status is RequestStatus.PREEMPTED, rng.random()))
                    states.add(request.status)
                    overrun += end(engine, request)
    assert states == {RequestStatus.RUNNING, RequestStatus.PREEMPTED}
    assert overrun > 0
