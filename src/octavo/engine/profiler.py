"""Records what a core does from the start of a profile to its stop."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from octavo.errors import InvalidRequestError, ProfileError
from octavo.request.ledger import ChoiceLedger
from octavo.request.orders import StartProfile
from octavo.request.outputs import RequestStats
from octavo.request.profile import OpInfo, Profile, ProfiledStep, ProfileEnd, ProfileState, RequestLife, Span
from octavo.scheduling.plan import StepPlan, StepResult

MAX_SECONDS = 86400.0
MAX_STEPS = 10**7
MIN_EVENTS, MAX_EVENTS = 100, 2_000_000
"""An event takes 40 to 500 bytes in the core, and about 200 in a trace."""

_UNTIMED = contextlib.nullcontext()


class _Recording:
    """What a profile has so far."""

    def __init__(self, number: int, order: StartProfile, now_s: float, now_unix_s: float) -> None:
        self.number = number
        self.order = order
        self.begin_s = now_s
        self.begin_unix_s = now_unix_s
        self.end_s: float | None = None
        self.ended_by = ProfileEnd.STOPPED
        self.is_enough: ProfileEnd | None = None
        """It ends with what the core is busy with."""
        self.num_events = 0
        self.num_planned = 0
        self.planned: dict[int, Span] = {}
        """Step on its way -> its planning. Both become part of the profile when it is taken in."""
        self.spans: list[Span] = []
        self.steps: list[ProfiledStep] = []
        self.requests: list[RequestLife] = []

    def end(self, by: ProfileEnd, now_s: float) -> None:
        """Nothing more is recorded."""
        self.ended_by, self.end_s = by, now_s
        self.planned.clear()

    def has_room(self, num_events: int) -> bool:
        """Whether so many more events may be kept; if not, the profile is full."""
        if self.num_events + num_events <= self.order.max_events:
            self.num_events += num_events
            return True
        self.is_enough = ProfileEnd.FULL
        return False


class Profiler:
    """The profile of a core, of which there is one at a time. All calls come from the core's thread.

    Off, it costs the core a look at `is_on` or two per step, and the executor nothing.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        executor: str = "",
        programs: Mapping[str, Sequence[OpInfo]] | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            executor: its name, for whoever reads the profile.
            programs: whose ops it times.
        """
        self._clock = clock
        self._wall_clock = wall_clock
        self._executor = executor
        self._programs = {name: list(ops) for name, ops in (programs or {}).items()}
        self._recording: _Recording | None = None
        self._number = 0
        self.is_on = False
        """Whether something is being recorded."""
        self.when_ended: Callable[[], None] = lambda: None
        """Called when a profile has ended by itself."""
        self.live: Callable[[], Iterable[ChoiceLedger]] = tuple
        """Requests that have not ended, as they are now."""

    def start(self, order: StartProfile) -> int:
        """Begins a profile; returns its number.

        Raises:
            ProfileError: there is one.
            InvalidRequestError: a limit that cannot be.
        """
        _check(order)
        if self._recording is not None:
            what = "runs" if self.is_on else "has ended and not been fetched"
            raise ProfileError(f"profile {self._recording.number} {what}; there is one at a time: stop it first")
        self._number += 1
        self._recording = _Recording(self._number, order, self._clock(), self._wall_clock())
        self.is_on = True
        return self._number

    def state(self) -> ProfileState:
        """How far it is."""
        recording = self._recording
        if recording is None:
            return ProfileState(number=0, running=False)
        self._end_in_time(recording)
        return ProfileState(
            number=recording.number,
            running=self.is_on,
            num_steps=len(recording.steps),
            num_events=recording.num_events,
        )

    def stop(self, number: int | None = None, by: ProfileEnd = ProfileEnd.STOPPED) -> Profile:
        """Ends the profile, if it has not ended, and forgets it.

        Args:
            number: which one; None: whichever there is.

        Raises:
            ProfileError: there is none, or another one.
        """
        recording = self._recording
        if recording is None or number not in (None, recording.number):
            which = "no profile runs" if number is None else f"profile {number} is no more: somebody has stopped it"
            raise ProfileError(f"{which}; start one first")
        self._end_in_time(recording)
        if self.is_on:
            self._end(recording, by)
        self._recording = None
        return self._profile(recording)

    def _profile(self, recording: _Recording) -> Profile:
        return Profile(
            number=recording.number,
            process=os.getpid(),
            thread=threading.get_native_id(),
            begin_s=recording.begin_s,
            end_s=recording.begin_s if recording.end_s is None else recording.end_s,
            begin_unix_s=recording.begin_unix_s,
            ended_by=recording.ended_by,
            programs=self._programs,
            executor=self._executor,
            spans=recording.spans,
            steps=recording.steps,
            requests=recording.requests,
            num_events=recording.num_events,
            max_events=recording.order.max_events,
        )

    # ---- what the core does, while `is_on`

    def planned(self, plan: StepPlan, begin_s: float, end_s: float) -> StepPlan:
        """A step has been planned; returns it as it is to be run."""
        recording = self._recording
        if recording is None:
            return plan
        self._end_in_time(recording)
        most = recording.order.max_steps
        if not self.is_on or recording.is_enough or (most is not None and recording.num_planned >= most):
            return plan
        recording.num_planned += 1
        recording.planned[plan.step] = Span("schedule", begin_s, end_s, {"step": plan.step})
        return msgspec.structs.replace(plan, profiled=True)

    def landed(self, plan: StepPlan, result: StepResult, begin_s: float, end_s: float) -> None:
        """A step has been taken in, from `begin_s` to `end_s`."""
        recording = self._recording
        planned = None if recording is None else recording.planned.pop(plan.step, None)
        if recording is None or planned is None:
            return
        ran = result.profile
        num_events = 3 if ran is None else 3 + len(ran.spans) + ran.num_ops
        if not recording.has_room(num_events):
            return
        recording.spans += (planned, Span("update", begin_s, end_s, {"step": plan.step}))
        recording.steps.append(ProfiledStep(step=plan.step, args=_figures(plan, result), ran=ran))
        if len(recording.steps) == recording.order.max_steps:
            recording.is_enough = ProfileEnd.STEPS

    def span(self, name: str) -> contextlib.AbstractContextManager[None]:
        """What the core does outside its steps."""
        return self._timed(name) if self.is_on else _UNTIMED

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begin_s = self._clock()
        yield
        recording = self._recording
        if recording is not None and self.is_on:
            if recording.has_room(1):
                recording.spans.append(Span(name, begin_s, self._clock()))
            self._end_in_time(recording)

    def closed(self, request_id: str, state: str, stats: RequestStats) -> None:
        """A request has ended."""
        if self.is_on and self._recording is not None:
            self._keep(self._recording, request_id, state, stats)

    def _keep(self, recording: _Recording, request_id: str, state: str, stats: RequestStats) -> None:
        if recording.has_room(8):
            recording.requests.append(_life(request_id, state, stats))

    def _end_in_time(self, recording: _Recording) -> None:
        """Ends it if it has all that it may have."""
        if not self.is_on:
            return
        seconds = recording.order.max_seconds
        if recording.is_enough is not None:
            self._end(recording, recording.is_enough)
        elif seconds is not None and self._clock() >= recording.begin_s + seconds:
            self._end(recording, ProfileEnd.SECONDS)
        else:
            return
        self.when_ended()

    def _end(self, recording: _Recording, by: ProfileEnd) -> None:
        for ledger in self.live():
            self._keep(recording, ledger.request_id, ledger.state, ledger.stats)
        self.is_on = False
        recording.end(by, self._clock())


def _check(order: StartProfile) -> None:
    """
    Raises:
        InvalidRequestError: names the limit.
    """
    steps, seconds, events = order.max_steps, order.max_seconds, order.max_events
    if steps is not None and not 1 <= steps <= MAX_STEPS:
        raise InvalidRequestError("steps", steps, f"must be in [1, {MAX_STEPS}]")
    if seconds is not None and not 0 < seconds <= MAX_SECONDS:
        raise InvalidRequestError("seconds", seconds, f"must be in (0, {MAX_SECONDS:.0f}]")
    if not MIN_EVENTS <= events <= MAX_EVENTS:
        raise InvalidRequestError("max_events", events, f"must be in [{MIN_EVENTS}, {MAX_EVENTS}]")


def _figures(plan: StepPlan, result: StepResult) -> dict[str, int]:
    """A request with one known token counts as decoding: the last token of a prompt does, too."""
    drafts = result.num_draft_tokens or (0,) * len(plan.request_ids)
    planned_drafts = plan.num_draft_tokens or drafts
    known = [n - d for n, d in zip(plan.num_scheduled_tokens, planned_drafts, strict=True)]
    return {
        "requests": len(plan.request_ids),
        "tokens": sum(known) + sum(drafts),
        "prefill_tokens": sum(n for n in known if n > 1),
        "decode_rows": sum(n == 1 for n in known),
        "draft_tokens": sum(drafts),
        "tokens_out": sum(map(len, result.token_ids)),
        "new_requests": len(plan.new_requests),
        "preempted": len(plan.preempted_request_ids),
        "failed": len(result.errors),
    }


def _life(request_id: str, state: str, stats: RequestStats) -> RequestLife:
    return RequestLife(
        request_id=request_id,
        arrival_s=stats.arrival_s,
        first_scheduled_s=stats.first_scheduled_s,
        first_token_s=stats.first_token_s,
        end_s=stats.finished_s,
        state=state,
        preempted_s=list(stats.preempted_s),
        args={
            "prompt_tokens": stats.num_prompt_tokens,
            "cached_tokens": stats.num_cached_tokens,
            "output_tokens": stats.num_output_tokens,
            "steps": stats.num_steps,
            "preemptions": stats.num_preemptions,
        },
    )
