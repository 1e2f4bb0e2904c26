"""From settings to the times at which dialogues begin."""

import math
from collections.abc import Sequence

from octavo.bench.load.arrivals import RAMPS, recorded, steady, unit_times
from octavo.bench.load.dialogue import Dialogue
from octavo.bench.load.settings import ArrivalSettings
from octavo.errors import ConfigError


def schedule(settings: ArrivalSettings, dialogues: Sequence[Dialogue], seed: int) -> list[float] | None:
    """Seconds since the run began, one per dialogue. None: there is no schedule, the loop is closed.

    Raises:
        ConfigError: a setting has no effect.
    """
    times = [dialogue.at_s for dialogue in dialogues if dialogue.at_s is not None]
    if settings.request_rate is not None:
        return _at_rate(settings, settings.request_rate, len(dialogues), seed)
    if settings.burstiness != 1:
        raise ConfigError("burstiness", settings.burstiness, "has no effect without request_rate")
    if times:
        return recorded(times, settings.time_scale)
    if settings.time_scale != 1:
        raise ConfigError("time_scale", settings.time_scale, "has no effect: the data set has no times")
    return None if settings.max_concurrency is not None else [0.0] * len(dialogues)


def _at_rate(settings: ArrivalSettings, rate: float, count: int, seed: int) -> list[float]:
    if settings.time_scale != 1:
        raise ConfigError("time_scale", settings.time_scale, "has no effect with request_rate")
    if math.isinf(rate):
        return [0.0] * count
    pace = steady(rate) if settings.ramp_to is None else RAMPS[settings.ramp](count, rate, settings.ramp_to)
    return [pace(arrivals) for arrivals in unit_times(count, settings.burstiness, seed)]
