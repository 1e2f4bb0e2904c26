"""Profiles without a model: when they begin and end, what they hold, what they refuse."""

import pytest

from octavo.engine.chrome_trace import chrome_trace
from octavo.engine.profiler import Profiler
from octavo.errors import InvalidRequestError, ProfileError
from octavo.request.ledger import ChoiceLedger
from octavo.request.orders import StartProfile
from octavo.request.outputs import RequestStats
from octavo.request.profile import ProfileEnd, Span, StepProfile
from octavo.scheduling.plan import StepPlan, StepResult
from tests.trace_format import checked


class Ticking:
    """A core's clock, and a profiler that is told of made-up steps."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.profiler = Profiler(lambda: self.now_s, wall_clock=lambda: 1.7e9)
        self.num_steps = 0

    def plan(self) -> StepPlan:
        self.now_s += 0.1
        plan = StepPlan(
            step=self.num_steps,
            request_ids=("a", "b"),
            num_scheduled_tokens=(5, 3),
            num_computed_tokens=(0, 7),
            new_block_ids=((), ()),
            num_draft_tokens=(0, 2),
        )
        self.num_steps += 1
        return self.profiler.planned(plan, self.now_s - 0.1, self.now_s) if self.profiler.is_on else plan

    def land(self, plan: StepPlan, *, tells: bool = True) -> None:
        ran = StepProfile(thread=7, spans=(Span("forward", self.now_s, self.now_s + 0.5),)) if tells else None
        self.now_s += 0.7
        result = StepResult(step=plan.step, token_ids=((), (1, 2)), num_draft_tokens=(0, 1), profile=ran)
        if self.profiler.is_on:
            self.profiler.landed(plan, result, self.now_s - 0.1, self.now_s)
        with self.profiler.span("output"):
            self.now_s += 0.1

    def step(self) -> None:
        self.land(self.plan())


@pytest.fixture
def core() -> Ticking:
    return Ticking()


def test_a_profile_holds_the_steps_between_start_and_stop(core: Ticking) -> None:
    core.step()
    in_flight = core.plan()
    assert not in_flight.profiled
    assert core.profiler.start(StartProfile()) == 1
    core.land(in_flight)  # planned before
    core.step()
    never_landed = core.plan()
    assert never_landed.profiled
    assert core.profiler.state().num_steps == 1
    profile = core.profiler.stop()
    core.land(never_landed)
    assert [step.step for step in profile.steps] == [2]
    assert profile.steps[0].args == {
        "requests": 2, "tokens": 7, "prefill_tokens": 5, "decode_rows": 1, "draft_tokens": 1, "tokens_out": 2,
        "new_requests": 0, "preempted": 0, "failed": 0,
    }  # fmt: skip
    assert [span.name for span in profile.spans] == ["output", "schedule", "update", "output"]
    assert profile.ended_by is ProfileEnd.STOPPED
    trace = checked(chrome_trace(profile, "m"))
    assert [step.name for step in trace.steps] == ["step 2"]
    assert trace.about["began"] == "2023-11-14T22:13:20.000+00:00"
    assert core.profiler.state().number == 0 and not core.plan().profiled


def test_a_profile_ends_after_so_many_steps_with_what_belongs_to_them(core: Ticking) -> None:
    core.profiler.start(StartProfile(max_steps=2))
    plans = [core.plan() for _ in range(3)]
    assert [plan.profiled for plan in plans] == [True, True, False]
    for plan in plans:
        core.land(plan)
    assert not core.profiler.state().running
    profile = core.profiler.stop(1)
    assert (len(profile.steps), profile.ended_by) == (2, ProfileEnd.STEPS)
    assert [span.name for span in profile.spans][-2:] == ["update", "output"]


def test_requests_that_end_after_the_profile_and_before_it_is_fetched_are_in_it(core: Ticking) -> None:
    live = [ChoiceLedger(request_id="a", state="running", stats=RequestStats(arrival_s=101))]
    core.profiler.live = lambda: live
    core.profiler.start(StartProfile(max_steps=1))
    core.step()
    live.clear()
    core.profiler.closed("a", "length", RequestStats(arrival_s=101, finished_s=103))
    assert [(one.request_id, one.state) for one in core.profiler.stop().requests] == [("a", "running")]


def test_a_profile_ends_after_so_many_seconds_even_if_nothing_runs(core: Ticking) -> None:
    core.profiler.start(StartProfile(max_seconds=2))
    core.step()
    assert core.profiler.state().running
    core.now_s += 5
    assert not core.profiler.state().running
    core.step()
    profile = core.profiler.stop(1)
    assert (len(profile.steps), profile.ended_by) == (1, ProfileEnd.SECONDS)


def test_a_full_profile_ends_and_says_so(core: Ticking) -> None:
    told: list[str] = []
    core.profiler.when_ended = lambda: told.append("ended")
    core.profiler.start(StartProfile(max_events=100))
    for _ in range(50):
        core.step()
    profile = core.profiler.stop()
    assert profile.ended_by is ProfileEnd.FULL and told == ["ended"]
    assert 90 < profile.num_events <= 100
    trace = checked(chrome_trace(profile))
    assert trace.about["cut"] == "the profile was full with 100 events; what came later is not in it"
    assert len(trace.steps) == 20


def test_there_is_one_profile_at_a_time(core: Ticking) -> None:
    with pytest.raises(ProfileError, match="no profile runs; start one first"):
        core.profiler.stop()
    first = core.profiler.start(StartProfile(max_steps=1))
    with pytest.raises(ProfileError, match="profile 1 runs; there is one at a time: stop it first"):
        core.profiler.start(StartProfile())
    core.step()
    with pytest.raises(ProfileError, match="profile 1 has ended and not been fetched"):
        core.profiler.start(StartProfile())
    core.profiler.stop()
    assert core.profiler.start(StartProfile()) == 2
    with pytest.raises(ProfileError, match="profile 1 is no more: somebody has stopped it"):
        core.profiler.stop(first)


@pytest.mark.parametrize(
    ("order", "problem"),
    [
        (StartProfile(max_steps=0), "steps=0: must be in"),
        (StartProfile(max_seconds=0.0), "seconds=0.0: must be in"),
        (StartProfile(max_seconds=float("nan")), "seconds=nan: must be in"),
        (StartProfile(max_events=99), r"max_events=99: must be in \[100, "),
    ],
)
def test_limits_that_cannot_be_are_named(core: Ticking, order: StartProfile, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        core.profiler.start(order)
    assert not core.profiler.is_on


def test_requests_are_told_as_far_as_they_came(core: Ticking) -> None:
    core.profiler.start(StartProfile())
    core.now_s += 10
    whole = RequestStats(
        arrival_s=90,
        first_scheduled_s=95,
        first_token_s=104,
        finished_s=106,
        num_output_tokens=3,
        preempted_s=[97, 105],
    )
    core.profiler.closed("old", "length", whole)
    core.profiler.closed("quick", "abort", RequestStats(arrival_s=103, finished_s=104))
    live = RequestStats(arrival_s=105, first_scheduled_s=107)
    core.profiler.live = lambda: [ChoiceLedger(request_id="late", state="running", stats=live)]
    profile = core.profiler.stop()
    trace = checked(chrome_trace(profile))
    told = {name: [(e["ph"], e["name"], e["ts"] / 1e6) for e in events] for name, events in trace.requests().items()}
    assert told["old"] == [
        ("b", "old", 0), ("b", "prefill", 0), ("e", "prefill", 4), ("b", "decode", 4), ("n", "preempted", 5),
        ("e", "decode", 6), ("e", "old", 6),
    ]  # fmt: skip
    assert told["quick"] == [("b", "quick", 3), ("b", "queued", 3), ("e", "queued", 4), ("e", "quick", 4)]
    assert told["late"][-1] == ("e", "late", 10)
    (first, *_) = trace.requests()["old"]
    assert first["args"]["arrived_s_before"] == 10 and first["args"]["output_tokens"] == 3


def test_an_executor_that_keeps_no_times_leaves_what_the_core_did(core: Ticking) -> None:
    core.profiler.start(StartProfile())
    core.land(core.plan(), tells=False)
    trace = checked(chrome_trace(core.profiler.stop()))
    assert trace.steps == [] and len(trace.named("update")) == 1
