"""Scheduling policies that other packages bring, found by entry point."""

from typing import cast

from octavo.config import SchedulerConfig
from octavo.engine.plug_ins import made, plug_in
from octavo.scheduling.policy import POLICIES, SchedulingPolicy

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
    return cast(SchedulingPolicy, made(point, _SETTING, config, SchedulingPolicy))
