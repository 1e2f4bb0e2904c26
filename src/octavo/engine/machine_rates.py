"""What this machine can do at most, as it was measured once and kept in the cache folder. Nothing is measured here."""

import logging
from pathlib import Path
from typing import NamedTuple

import msgspec

from octavo.hub.cache import cache_key
from octavo.platform.cpu import CpuMachine

log = logging.getLogger(__name__)


class MachineRates(NamedTuple):
    """Per second, with all usable cores."""

    read_bytes: float
    int8_ops: float
    float_ops: float


class _Device(msgspec.Struct):
    memory_bytes_per_s: float
    flops_per_s: dict[str, float]


class _Profile(msgspec.Struct):
    """Of a hardware profile, as `octavo.planning.hardware` reads it, what is needed here."""

    device: _Device


def profile_path(root: Path, machine: CpuMachine) -> Path:
    """Where the profile of a processor with so many usable cores is kept, below the cache folder."""
    return root / "hardware" / f"{cache_key(machine.model_name)}-{machine.usable_cores}.json"


def kept_rates(root: Path, machine: CpuMachine) -> MachineRates | None:
    """The rates in the kept profile of this machine; None where there is none, or it is damaged."""
    path = profile_path(root, machine)
    try:
        device = msgspec.json.decode(path.read_bytes(), type=_Profile).device
        return MachineRates(device.memory_bytes_per_s, device.flops_per_s["int8"], device.flops_per_s["fp32"])
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, KeyError) as error:
        log.warning("no bounds are told of requests: %s is no profile of this machine (%s)", path, error)
        return None
