"""Between the scheduler and a policy that somebody else may have written: what it raises at a request ends that one."""

from collections.abc import Sequence
from dataclasses import replace

from octavo.kv.manager import KVManager
from octavo.scheduling.policy import SchedulingPolicy, SortKey
from octavo.scheduling.preemption import last_admitted
from octavo.scheduling.request_state import SchedulerRequest

_LEAST_URGENT = 2**62


class PolicyGuard:
    """Answers in place of a policy that raises, and remembers at whom, so that the scheduler can end these requests at
    the next opportunity. Until then they come last and yield first."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._policy = policy
        self._broken: dict[SchedulerRequest, str] = {}

    def policy(self) -> SchedulingPolicy:
        """The policy, guarded: the same order, the same choices; none of its functions raises."""
        urgency = None if self._policy.urgency is None else self._urgency
        return replace(self._policy, sort_key=self._sort_key, urgency=urgency, choose_victim=self._choose_victim)

    def check(self, request: SchedulerRequest) -> None:
        """Raises what the policy raises at a new request, before anything is noted of it."""
        self._policy.sort_key(request)
        if self._policy.urgency is not None:
            self._policy.urgency(request)

    def take_broken(self) -> dict[SchedulerRequest, str]:
        """Requests at which the policy has raised since the last call, and what to tell their clients."""
        broken, self._broken = self._broken, {}
        return broken

    def _sort_key(self, request: SchedulerRequest) -> SortKey:
        try:
            return (False, self._policy.sort_key(request))
        except Exception as error:
            self._note(request, error)
            return (True, request.arrival_index)

    def _urgency(self, request: SchedulerRequest) -> int:
        try:
            return self._policy.urgency(request) if self._policy.urgency is not None else 0
        except Exception as error:
            self._note(request, error)
            return _LEAST_URGENT

    def _choose_victim(self, candidates: Sequence[SchedulerRequest], manager: KVManager) -> SchedulerRequest:
        """Nobody is to blame for a rule that raises, or that names somebody who does not stand for choice."""
        try:
            victim = self._policy.choose_victim(candidates, manager)
        except Exception:
            return last_admitted(candidates, manager)
        return victim if victim in candidates else last_admitted(candidates, manager)

    def _note(self, request: SchedulerRequest, error: Exception) -> None:
        self._broken[request] = f"the scheduling policy {self._policy.name!r} raised {type(error).__name__} at it"
