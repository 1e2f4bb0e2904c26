"""Profiles of machines: shipped, written by hand, measured."""

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.bench.this_machine import this_machine
from octavo.engine.machine_rates import profile_path
from octavo.errors import ConfigError
from octavo.planning.hardware import (
    hardware_named,
    profile_from_json,
    profile_to_json,
    shipped_hardware,
)
from octavo.platform.cpu import CpuMachine, describe_machine
from octavo.platform.peaks import Peaks, measure_peaks

MACHINE = CpuMachine("A Processor @ 3 GHz", usable_cores=3, total_memory_bytes=2**33, available_memory_bytes=2**32)
SMALL: dict[str, Any] = {
    "name": "small",
    "num_devices": 2,
    "device": {"name": "d", "memory_bytes": 1e9, "memory_bytes_per_s": 1e10, "flops_per_s": {"fp32": 1e11}},
}


def peaks_of(threads: int) -> Peaks:
    return Peaks(threads, "portable", read_bytes_per_s=2e10, int8_ops_per_s=4e11, float_ops_per_s=1e11)


@pytest.mark.parametrize("name", shipped_hardware())
def test_shipped_profiles_are_read_and_written_back(name: str) -> None:
    profile = hardware_named(name)
    assert profile.name == name
    assert profile.sources["device"]
    assert profile_from_json(profile_to_json(profile), "again") == profile


def changed(*path: str, value: object) -> dict[str, Any]:
    """A copy with one field set, or taken out where `value` is Ellipsis."""
    copy: dict[str, Any] = json.loads(json.dumps(SMALL))
    place = copy
    for key in path[:-1]:
        place = place.setdefault(key, {})
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ([], "must be an object"),
        (changed("name", value=...), "f.json: name=None: is missing; add it"),
        (changed("num_devices", value=0), "f.json: num_devices=0: must be a whole number from 1 on"),
        (changed("num_devices", value=True), "num_devices=True"),
        (changed("device", value=7), "f.json: device=7: must be an object"),
        (changed("device", "memory_bytes", value="80GB"), "f.json: device: memory_bytes='80GB': must be a positive"),
        (changed("device", "memory_bytes_per_s", value=-1), "memory_bytes_per_s=-1: must be a positive number"),
        (changed("device", "flops_per_s", value={}), "flops_per_s={}: must hold at least one number format"),
        (changed("device", "flops_per_s", "bf16", value=None), "device: flops_per_s: bf16=None"),
        (changed("device", "colour", value="red"), "f.json: device: colour='red': is not known here; known are"),
        (changed("network", value={"bits_per_s": 1e9}), "f.json: network: num_links=None: is missing"),
        (changed("interconnect", "bytes_per_s", value=1e9), "interconnect: all_reduce_latency_s=None"),
    ],
)
def test_faults_of_a_profile_name_the_field(content: object, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        profile_from_json(json.dumps(content), "f.json")
    assert told in str(caught.value)


def test_no_json_and_no_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no valid JSON"):
        profile_from_json("{", "f.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        hardware_named(str(tmp_path / "f.json"))
    with pytest.raises(ConfigError, match="choose one of cpu, a100, h100, h100x8"):
        hardware_named("h1000")


def test_linears_use_what_the_device_has() -> None:
    profile = hardware_named("a100")
    assert profile.first_operands(("fp8", "bf16")) == "bf16"
    with pytest.raises(ConfigError, match="none of fp8; add one to the profile"):
        profile.first_operands(("fp8",))


def test_this_machine_is_measured_once(tmp_path: Path) -> None:
    asked: list[int] = []

    def measure(threads: int) -> Peaks:
        asked.append(threads)
        return peaks_of(threads)

    first = this_machine(tmp_path, measure, MACHINE)
    assert this_machine(tmp_path, measure, MACHINE) == first
    assert asked == [3]
    assert dict(first.device.flops_per_s) == {"int8": 4e11, "fp32": 1e11}
    assert first.device.memory_bytes_per_s == 2e10
    assert first.device.memory_bytes == 2**33
    path = profile_path(tmp_path, MACHINE)
    assert path.name in first.sources["device"]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_other_machines_have_profiles_of_their_own(tmp_path: Path) -> None:
    other = CpuMachine("A Processor @ 3 GHz", 2, 2**33, 2**32)
    assert profile_path(tmp_path, MACHINE) != profile_path(tmp_path, other)


def test_a_broken_kept_profile_says_what_to_delete(tmp_path: Path) -> None:
    path = profile_path(tmp_path, MACHINE)
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(ConfigError, match=r"delete .* to measure again"):
        this_machine(tmp_path, peaks_of, MACHINE)


def test_this_very_machine(tmp_path: Path) -> None:
    """All three figures come from the native loops; a second of all suffices to see that they are no nonsense."""
    profile = this_machine(tmp_path, lambda threads: measure_peaks(threads, seconds=0.4))
    assert 1e8 < profile.device.memory_bytes_per_s < 1e13
    assert profile.device.speed_up("int8", "fp32") > 0.5
    assert profile.device.memory_bytes == describe_machine().total_memory_bytes
