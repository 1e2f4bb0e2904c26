"""The machine under our feet as a hardware profile: measured once, then kept in the cache folder."""

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile

from octavo.engine.machine_rates import profile_path
from octavo.errors import ConfigError
from octavo.hub.cache import disk_errors, make_folder
from octavo.planning.hardware import Device, HardwareProfile, hardware_named, profile_to_json
from octavo.platform.cpu import CpuMachine, describe_machine
from octavo.platform.peaks import Peaks, measure_peaks

MEASURE_S = 3.0
Measure = Callable[[int], Peaks]
"""Number of threads -> what they reach together."""


def this_machine(root: Path, measure: Measure | None = None, machine: CpuMachine | None = None) -> HardwareProfile:
    """The kept profile, or a new one after about three seconds of measuring with all usable cores. Other work on the
    machine lowers what is found: delete the file to measure again.

    Args:
        root: the cache folder.
        measure: None: the native core's loops.
        machine: None: this one.

    Raises:
        ConfigError: the kept file is no profile.
        CacheError: the cache folder cannot be written.
    """
    machine = machine or describe_machine()
    path = profile_path(root, machine)
    if not path.exists():
        peaks = (measure or _measure)(machine.usable_cores)
        _keep(profile_of(machine, peaks, path), path)
    try:
        return hardware_named(str(path))
    except ConfigError as error:
        raise ConfigError(error.field, error.value, f"{error.problem}; delete {path} to measure again") from None


def profile_of(machine: CpuMachine, peaks: Peaks, path: Path) -> HardwareProfile:
    """One device: all cores and their memory. Linears of integer weights multiply bytes, everything else is float32."""
    return HardwareProfile(
        name="cpu",
        num_devices=1,
        device=Device(
            name=f"{machine.model_name}, {peaks.threads} threads, {peaks.isa}",
            memory_bytes=machine.total_memory_bytes,
            memory_bytes_per_s=peaks.read_bytes_per_s,
            flops_per_s={"int8": peaks.int8_ops_per_s, "fp32": peaks.float_ops_per_s},
        ),
        sources={
            "device": f"measured here under a load of {os.getloadavg()[0]:.1f}; delete hardware/{path.name} in the "
            "cache folder to measure again"
        },
    )


def _measure(threads: int) -> Peaks:
    return measure_peaks(threads, seconds=MEASURE_S)


def _keep(profile: HardwareProfile, path: Path) -> None:
    """Complete or not at all, whoever else measures."""
    make_folder(path.parent)
    with disk_errors(path), NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(profile_to_json(profile))
        file.flush()
        Path(file.name).replace(path)
