"""Who gives up its blocks when a running request needs some and none are free.

Preemption is by recomputation: the victim loses its blocks, keeps its tokens and waits to be admitted again. Its full
blocks stay findable until they are reused, so that it often finds most of them when it comes back.
"""

from collections.abc import Callable, Reversible

from octavo.scheduling.request_state import SchedulerRequest

ChooseVictim = Callable[[Reversible[SchedulerRequest]], SchedulerRequest]
"""Picks one of the running requests, given in admission order; there is at least one."""


def last_admitted(running: Reversible[SchedulerRequest]) -> SchedulerRequest:
    """The request admitted last: it has most probably got least work to lose, and the oldest always get on."""
    return next(reversed(running))


def least_urgent(running: Reversible[SchedulerRequest]) -> SchedulerRequest:
    """The request with the worst (priority, arrival, admission): larger numbers yield to smaller ones."""
    return max(running, key=lambda request: (request.request.priority, request.arrival_s, request.arrival_index))
