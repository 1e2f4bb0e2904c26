"""Scheduling policies that other packages bring, found by entry point."""

from importlib.metadata import EntryPoint, entry_points

from octavo.config import SchedulerConfig
from octavo.errors import ConfigError
from octavo.scheduling.policy import POLICIES, SchedulingPolicy

GROUP = "octavo.scheduling_policies"


def scheduling_policy(config: SchedulerConfig) -> SchedulingPolicy:
    """The policy that the configuration names: a built-in one, or else a plug-in's. No plug-in is loaded but that one.

    Raises:
        ConfigError: there is none of this name, several packages bring one, or it cannot be loaded or made; naming the
            policy and the package.
    """
    name = config.scheduling_policy
    if name in POLICIES:
        return POLICIES[name](config)
    found = entry_points(group=GROUP)
    offers = [point for point in found if point.name == name]
    if not offers:
        known = ", ".join(sorted({*POLICIES, *found.names}))
        problem = f"known policies are {known}; packages can bring others as entry points of {GROUP!r}"
        raise ConfigError("scheduling_policy", name, problem)
    if len(offers) > 1:
        packages = ", ".join(sorted(_package(point) for point in offers))
        raise ConfigError("scheduling_policy", name, f"several packages bring a policy of this name: {packages}")
    return _make(offers[0], config)


def _make(point: EntryPoint, config: SchedulerConfig) -> SchedulingPolicy:
    try:
        policy = point.load()(config)
    except ConfigError:
        raise
    except Exception as error:
        problem = f"{_origin(point)} cannot be loaded: {type(error).__name__}: {error}"
        raise ConfigError("scheduling_policy", point.name, problem) from error
    if not isinstance(policy, SchedulingPolicy):
        problem = f"{_origin(point)} gave a {type(policy).__name__}, not a SchedulingPolicy"
        raise ConfigError("scheduling_policy", point.name, problem)
    return policy


def _origin(point: EntryPoint) -> str:
    return f"{point.value} of the package {_package(point)}"


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "(unknown)"
