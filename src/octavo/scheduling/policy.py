"""Scheduling policies: an order of the waiting queue and a choice of victims, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from octavo.errors import ConfigError
from octavo.scheduling.preemption import ChooseVictim, last_admitted, least_urgent
from octavo.scheduling.request_state import SchedulerRequest

SortKey = tuple[Any, ...]
"""Compared among requests of one queue; smaller is admitted first. Fixed while a request waits."""


@dataclass(frozen=True)
class SchedulingPolicy:
    """One policy. Keys end in something unique, so that the order never depends on the queue's history."""

    name: str
    sort_key: Callable[[SchedulerRequest], SortKey]
    choose_victim: ChooseVictim


def _by_arrival(request: SchedulerRequest) -> SortKey:
    """Order of arrival. Requests are admitted in this order, so a preempted one stands before all that wait."""
    return (request.arrival_index,)


def _by_priority(request: SchedulerRequest) -> SortKey:
    return (request.request.priority, request.arrival_s, request.request_id)


POLICIES: dict[str, SchedulingPolicy] = {
    policy.name: policy
    for policy in (
        SchedulingPolicy("fcfs", _by_arrival, last_admitted),
        SchedulingPolicy("priority", _by_priority, least_urgent),
    )
}


def policy_named(name: str) -> SchedulingPolicy:
    """The policy of this name.

    Raises:
        ConfigError: listing the names there are.
    """
    if name not in POLICIES:
        raise ConfigError("scheduling_policy", name, f"known policies are {', '.join(sorted(POLICIES))}")
    return POLICIES[name]
