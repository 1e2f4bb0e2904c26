"""A machine as plain numbers: what each device computes and reads per second, and what connects it with others."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path

from octavo.errors import ConfigError
from octavo.planning.fields import Entry, entry_of

_SHIPPED = files("octavo.planning") / "hardware"


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator, or a processor with its memory."""

    name: str
    memory_bytes: float
    memory_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    """Number format of the operands -> peak, without sparsity; a multiply and an add count two."""

    def peak(self, operands: str) -> float:
        """FLOP per second with operands of one format; KeyError where the device lacks it."""
        return self.flops_per_s[operands]

    def speed_up(self, operands: str, over: str) -> float:
        """The peak with operands of one format, over that with another."""
        return self.peak(operands) / self.peak(over)


@dataclass(frozen=True, kw_only=True)
class Interconnect:
    """Between the devices of one machine."""

    bytes_per_s: float
    """That a device sends; it receives as much at the same time."""
    all_reduce_latency_s: float
    """Of an all-reduce of a few kilobytes over all devices."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """Between machines."""

    bits_per_s: float
    """Of one link."""
    num_links: int

    @property
    def bytes_per_s(self) -> float:
        """Of one link."""
        return self.bits_per_s / 8


@dataclass(frozen=True, kw_only=True)
class HostLink:
    """Between a device and the host's memory: serial lanes."""

    transfers_per_s: float
    """Of one lane."""
    num_lanes: int
    payload_bits: int
    line_bits: int
    """A line code sends `line_bits` for each `payload_bits`."""

    @property
    def bytes_per_s(self) -> float:
        """One way."""
        return self.transfers_per_s * self.num_lanes * self.payload_bits / self.line_bits / 8


@dataclass(frozen=True, kw_only=True)
class HardwareProfile:
    """A machine of equal devices. Links that it lacks, or that nobody has given, are None."""

    name: str
    num_devices: int
    device: Device
    interconnect: Interconnect | None = None
    network: Network | None = None
    host_link: HostLink | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where the numbers come from."""

    def first_operands(self, preferred: tuple[str, ...]) -> str:
        """The first of these operand formats that the device has a peak for.

        Raises:
            ConfigError: it has none.
        """
        for operands in preferred:
            if operands in self.device.flops_per_s:
                return operands
        known = ", ".join(self.device.flops_per_s)
        raise ConfigError(
            "hardware", self.name, f"flops_per_s holds {known}, none of {', '.join(preferred)}; add one to the profile"
        )


def shipped_hardware() -> tuple[str, ...]:
    """Names of the profiles that come with Octavo."""
    return tuple(sorted(file.name.removesuffix(".json") for file in _SHIPPED.iterdir() if file.name.endswith(".json")))


def hardware_named(name: str) -> HardwareProfile:
    """A shipped profile, or one of the user's: a path that ends in `.json`.

    Raises:
        ConfigError: there is none, or its file is no profile; names file, field, value and the fix.
    """
    if name in shipped_hardware():
        return profile_from_json((_SHIPPED / f"{name}.json").read_text(encoding="utf-8"), f"{name}.json")
    path = Path(name)
    if path.suffix != ".json":
        known = ", ".join(("cpu", *shipped_hardware()))
        raise ConfigError("hardware", name, f"is not known; choose one of {known}, or give a profile's .json file")
    try:
        return profile_from_json(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("hardware", name, f"cannot be read ({error}); give a profile's .json file") from None


def profile_from_json(text: str, place: str) -> HardwareProfile:
    """The profile in a JSON text; raises ConfigError as `hardware_named`.

    Args:
        place: the file, for messages.
    """
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ConfigError("hardware", place, f"is no valid JSON ({error})") from None
    whole = entry_of(content, place)
    profile = HardwareProfile(
        name=whole.text("name"),
        num_devices=whole.count("num_devices"),
        device=_device(whole.part("device")),
        interconnect=whole.optional("interconnect", _interconnect),
        network=whole.optional("network", _network),
        host_link=whole.optional("host_link", _host_link),
        sources=whole.texts("sources"),
    )
    whole.finish()
    return profile


def _device(entry: Entry) -> Device:
    device = Device(
        name=entry.text("name"),
        memory_bytes=entry.positive("memory_bytes"),
        memory_bytes_per_s=entry.positive("memory_bytes_per_s"),
        flops_per_s=entry.rates("flops_per_s"),
    )
    entry.finish()
    return device


def _interconnect(entry: Entry) -> Interconnect:
    link = Interconnect(
        bytes_per_s=entry.positive("bytes_per_s"), all_reduce_latency_s=entry.positive("all_reduce_latency_s")
    )
    entry.finish()
    return link


def _network(entry: Entry) -> Network:
    network = Network(bits_per_s=entry.positive("bits_per_s"), num_links=entry.count("num_links"))
    entry.finish()
    return network


def _host_link(entry: Entry) -> HostLink:
    link = HostLink(
        transfers_per_s=entry.positive("transfers_per_s"),
        num_lanes=entry.count("num_lanes"),
        payload_bits=entry.count("payload_bits"),
        line_bits=entry.count("line_bits"),
    )
    entry.finish()
    return link


def profile_to_json(profile: HardwareProfile) -> str:
    """The text that `profile_from_json` reads; links that are None are left out."""
    content = {name: value for name, value in asdict(profile).items() if value is not None}
    return json.dumps(content, indent=2) + "\n"
