"""Scheduling policies that other packages bring, found by entry point."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import ParamSpec, TypeVar, cast

from octavo.config import SchedulerConfig
from octavo.engine.plug_ins import made, plug_in
from octavo.scheduling.policy import POLICIES, SchedulingPolicy

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

log = logging.getLogger(__name__)

GROUP = "octavo.scheduling_policies"
_SETTING = "scheduling_policy"


def scheduling_policy(config: SchedulerConfig) -> SchedulingPolicy:
    """The policy that the configuration names: a built-in one, or else a plug-in's. No plug-in is loaded but that one.

    Raises:
        ConfigError: there is none of this name, several packages bring one, or it cannot be loaded or made; naming the
            policy and the package.
    """
    name = config.scheduling_policy
    if name in POLICIES:
        return POLICIES[name](config)
    point = plug_in(GROUP, _SETTING, name, POLICIES)
    return _telling(cast(SchedulingPolicy, made(point, _SETTING, config, SchedulingPolicy)))


def _telling(policy: SchedulingPolicy) -> SchedulingPolicy:
    """The policy; what it raises goes to the log, too, for whoever wrote it. The scheduler only says at whom."""

    def told(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
            try:
                return function(*arguments, **named)
            except Exception:
                log.exception("the scheduling policy %r failed", policy.name)
                raise

        return call

    return replace(
        policy,
        sort_key=told(policy.sort_key),
        choose_victim=told(policy.choose_victim),
        urgency=None if policy.urgency is None else told(policy.urgency),
    )
