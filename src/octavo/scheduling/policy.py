"""Scheduling policies: an order of the waiting queue and a choice of victims, by name.

A policy decides who goes first, never what anybody gets: tokens are the same under all of them. The contract for
one's own:

- A package offers it as an entry point of the group `octavo.scheduling_policies`; the entry point's name is the
  policy's, its object a `PolicyFactory`, for example a function `(SchedulerConfig) -> SchedulingPolicy`.
- Its functions are pure and fast (`sort_key` runs once per arrival, preemption and change of hit length). They may read
  the `SchedulerRequest` and must change nothing.
- Whoever waits must come first in the end. A key that lets later requests overtake without bound starves the others;
  `arrival_index`, `arrival_s` and `arrival_work` are there to prevent it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from octavo.config import SchedulerConfig
from octavo.errors import ConfigError
from octavo.scheduling.preemption import ChooseVictim, last_admitted, least_urgent
from octavo.scheduling.request_state import SchedulerRequest

SortKey = tuple[Any, ...]
"""Compared among the requests of one queue; smaller is admitted first."""


@dataclass(frozen=True, kw_only=True)
class SchedulingPolicy:
    """One policy."""

    name: str
    sort_key: Callable[[SchedulerRequest], SortKey]
    """Ends in something unique, so that the order never depends on the queue's history. Fixed while a request waits,
    but for what comes from `num_hit_tokens`."""
    follows_hits: bool = False
    """Whether `sort_key` reads `num_hit_tokens`, which is then kept up to date; a longer hit must not worsen a key."""
    reads_priority: bool = False
    """Whether it looks at the priority that a request carries. Where it does not, none but 0 is accepted over HTTP."""
    choose_victim: ChooseVictim = last_admitted
    """Who yields when blocks run out, unless `preemption_victim` names another rule."""
    urgency: Callable[[SchedulerRequest], int] | None = None
    """Class of a request, smaller is more urgent, fixed for its life. Victims come from the least urgent class that
    runs, and a waiting request may evict running ones of classes behind its own (`priority_eviction`). None: all are
    alike."""


PolicyFactory = Callable[[SchedulerConfig], SchedulingPolicy]
"""Makes a policy, with what the configuration says about it.

Raises:
    ConfigError: a setting cannot work.
"""


def _fcfs(_: SchedulerConfig) -> SchedulingPolicy:
    """Order of arrival. Requests are admitted in this order, so a preempted one stands before all that wait."""
    return SchedulingPolicy(name="fcfs", sort_key=lambda request: (request.arrival_index,))


def _priority(_: SchedulerConfig) -> SchedulingPolicy:
    return SchedulingPolicy(
        name="priority",
        sort_key=lambda request: (request.request.priority, request.arrival_s, request.request_id),
        reads_priority=True,
        choose_victim=least_urgent,
        urgency=lambda request: request.request.priority,
    )


def _prefix(config: SchedulerConfig) -> SchedulingPolicy:
    """Longest cached prefix, with linear ageing.

    After w tokens of work since its arrival a request is worth `hit + rate * w`. The work done until now is the same
    for all, so the order is that of `hit - rate * arrival_work`, which no clock changes. Nobody starves: with a context
    of L tokens, what arrives more than `L / rate` tokens of work after a request never overtakes it.
    """
    rate = config.prefix_ageing
    return SchedulingPolicy(
        name="prefix",
        sort_key=lambda request: (rate * request.arrival_work - request.num_hit_tokens, request.arrival_index),
        follows_hits=True,
    )


POLICIES: dict[str, PolicyFactory] = {"fcfs": _fcfs, "priority": _priority, "prefix": _prefix}
"""The policies that are built in, by name."""


def policy_named(config: SchedulerConfig) -> SchedulingPolicy:
    """The built-in policy that the configuration names.

    Raises:
        ConfigError: listing the names there are.
    """
    if config.scheduling_policy not in POLICIES:
        known = f"known policies are {', '.join(sorted(POLICIES))}"
        raise ConfigError("scheduling_policy", config.scheduling_policy, known)
    return POLICIES[config.scheduling_policy](config)
