"""What `octavo bench serve` is told. The fields' docstrings are the command's help."""

import math
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any, Literal

from octavo.bench.load.address import address_of
from octavo.bench.load.goodput import parse_slo_class
from octavo.config import choices
from octavo.errors import ConfigError

Endpoint = Literal["completions", "chat"]
DatasetName = Literal["random", "prefix", "multi-turn", "sharegpt", "trace", "custom"]
OF_FILES = ("sharegpt", "trace", "custom")
DEFAULT_COUNT = 100


Ramp = Literal["linear", "exponential"]
WindowName = Literal["run", "steady"]


@dataclass(frozen=True, kw_only=True)
class TargetSettings:
    """Which server, and how it is asked. The fields' docstrings are the command's help."""

    url: str = "http://127.0.0.1:8000"
    """Of any server that speaks OpenAI's protocol, with or without /v1."""
    model: str | None = None
    """Name that requests carry; None: the first that the server lists."""
    endpoint: Endpoint = "completions"
    """Which of its endpoints."""
    api_key: str | None = None
    """Sent as a bearer token."""
    header: tuple[str, ...] = ()
    """A further header, as `NAME: VALUE`."""
    stream: bool = True
    """Ask for answers as they are made. Without, each comes whole and only its end is timed: no TTFT, TPOT, ITL."""
    temperature: float | None = 0.0
    """Of sampling; negative: left to the server."""
    ignore_eos: bool = False
    """Ask for answers of the full length (vLLM's field, which Octavo knows too)."""
    extra_body: dict[str, Any] = field(default_factory=dict)
    """Further fields of every request, by which null takes one out."""
    request_timeout_s: float = 6 * 3600.0
    """Seconds after which we give a request up; it counts as aborted."""

    def __post_init__(self) -> None:
        _one_of("endpoint", self.endpoint, Endpoint)
        _above_zero("request_timeout_s", self.request_timeout_s)
        address_of(self.url)
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise ConfigError("api_key", "...", "must be printable ASCII")
        for line in self.header:
            name, colon, _ = line.partition(":")
            if not (colon and name.strip()) or not line.isprintable() or not line.isascii():
                raise ConfigError("header", line, "write it as 'NAME: VALUE'")


@dataclass(frozen=True, kw_only=True)
class DatasetSettings:
    """Which prompts, how many, how long."""

    dataset: DatasetName = "random"
    """Random words; a shared prefix before them; several turns; or a file: of ShareGPT's form, a trace (Azure's CSV or
    Mooncake's JSONL), JSONL of one's own."""
    dataset_path: str | None = None
    """The file."""
    num_prompts: int | None = None
    """Dialogues; None: as many as the file has, 100 without a file."""
    input_len: int = 1024
    """Tokens of a generated prompt, or of a turn."""
    output_len: int | None = None
    """Tokens of an answer; None: what the data set says, 128 where it says nothing."""
    max_input_len: int | None = None
    """Rows of a trace with longer prompts are left out: what a small model can be asked of a large one's trace."""
    range_ratio: float = 0.0
    """Generated lengths are drawn evenly from so much below to so much above, as a share of the length."""
    prefix_len: int = 512
    """Tokens of a shared prefix (data set prefix); `input_len` come after it."""
    num_prefixes: int = 1
    """How many different prefixes there are."""
    turns: int = 3
    """Questions of a dialogue (data set multi-turn)."""
    think_s: float = 0.0
    """Seconds from an answer's end to the next turn."""
    tokenizer: str | None = None
    """A model, by name or path, whose tokenizer counts: lengths are exact then. None: a word counts as a token."""
    seed: int = 0
    """Of prompts, lengths, arrivals and hang-ups."""

    def __post_init__(self) -> None:
        _one_of("dataset", self.dataset, DatasetName)
        if self.dataset in OF_FILES and self.dataset_path is None:
            raise ConfigError("dataset", self.dataset, "needs its file: dataset_path")
        if self.dataset_path is not None and self.dataset not in (*OF_FILES, "multi-turn"):
            raise ConfigError("dataset_path", self.dataset_path, f"has no effect with dataset={self.dataset}")
        if self.max_input_len is not None and self.dataset != "trace":
            raise ConfigError("max_input_len", self.max_input_len, f"has no effect with dataset={self.dataset}")
        for name in ("num_prompts", "input_len", "max_input_len", "output_len", "num_prefixes", "turns"):
            value = vars(self)[name]
            if value is not None and value < 1:
                raise ConfigError(name, value, "must be at least 1")
        for name in ("prefix_len", "think_s"):
            if not vars(self)[name] >= 0:
                raise ConfigError(name, vars(self)[name], "must not be negative")
        if not 0 <= self.range_ratio < 1:
            raise ConfigError("range_ratio", self.range_ratio, "must be in [0, 1)")

    def draw_len(self, draw: Random, length: int) -> int:
        """A length around the given one."""
        if self.range_ratio == 0:
            return length
        return draw.randint(max(1, round(length * (1 - self.range_ratio))), round(length * (1 + self.range_ratio)))

    def answer_len(self, known: int | None = None) -> int:
        """Tokens to ask for, where the data set says `known`."""
        return self.output_len or known or 128


@dataclass(frozen=True, kw_only=True)
class ArrivalSettings:
    """When dialogues begin."""

    request_rate: float | None = None
    """Dialogues a second, whatever the server does (open loop); inf: all at once. None: the times that the data set
    has; else as one client after another is free (closed loop: max_concurrency)."""
    burstiness: float = 1.0
    """Shape of the gamma distribution of the gaps. 1: Poisson; below: bursts; inf: constant."""
    ramp_to: float | None = None
    """The rate moves from request_rate to this one over the run."""
    ramp: Ramp = "linear"
    """How it moves."""
    time_scale: float = 1.0
    """Stretches the times of a data set; 0.5: twice as fast."""
    max_concurrency: int | None = None
    """Dialogues under way at most; one that has to wait counts from when it should have begun. Without a rate and
    times: the number of clients (None: all dialogues at once)."""

    def __post_init__(self) -> None:
        for name in ("request_rate", "burstiness", "ramp_to", "time_scale", "max_concurrency"):
            _above_zero(name, vars(self)[name])
        _one_of("ramp", self.ramp, Ramp)
        if self.ramp_to is not None and not (self.request_rate and math.isfinite(self.request_rate + self.ramp_to)):
            raise ConfigError("ramp_to", self.ramp_to, "needs a finite request_rate to start from, and to be finite")
        if not math.isfinite(self.time_scale):
            raise ConfigError("time_scale", self.time_scale, "must be finite")


@dataclass(frozen=True, kw_only=True)
class MeasureSettings:
    """What counts."""

    num_warmups: int | None = None
    """Dialogues before the run, which do not count. None: 2 where the data set is made, none where it is read."""
    window: WindowName = "run"
    """What counts of the run: all of it, or only the steady state between its first fill and its last send."""
    warm_up_s: float = 0.0
    """Seconds at the window's begin that do not count."""
    cool_down_s: float = 0.0
    """Seconds at the window's end that do not count."""
    goodput: tuple[str, ...] = ()
    """A promise in milliseconds: `ttft:300 tpot:60 itl:200 e2el:9000`, or of one class `NAME=ttft:300,tpot:60`."""
    hang_up_share: float = 0.0
    """Share of requests on which we hang up amid the answer, as users do; they count as aborted."""

    def __post_init__(self) -> None:
        _one_of("window", self.window, WindowName)
        for name in ("num_warmups", "warm_up_s", "cool_down_s"):
            if vars(self)[name] is not None and not vars(self)[name] >= 0:
                raise ConfigError(name, vars(self)[name], "must not be negative")
        if not 0 <= self.hang_up_share <= 1:
            raise ConfigError("hang_up_share", self.hang_up_share, "must be in [0, 1]")
        names = [parse_slo_class(text).name for text in self.goodput]
        if len(set(names)) < len(names):
            raise ConfigError("goodput", self.goodput, "has two classes of one name; give each another: NAME=LIMITS")


OF_STREAMS = ("ttft", "tpot", "itl")
"""Promises that can be judged only by when the parts of an answer come."""
PARTS = (TargetSettings, DatasetSettings, ArrivalSettings, MeasureSettings)


@dataclass(frozen=True, kw_only=True)
class LoadSettings:
    """All of it."""

    target: TargetSettings = field(default_factory=TargetSettings)
    data: DatasetSettings = field(default_factory=DatasetSettings)
    arrivals: ArrivalSettings = field(default_factory=ArrivalSettings)
    measure: MeasureSettings = field(default_factory=MeasureSettings)

    @classmethod
    def from_fields(cls, given: dict[str, Any]) -> "LoadSettings":
        """From field names of any of the parts.

        Raises:
            ConfigError: a value cannot work, or contradicts another.
        """
        parts = {
            place: part(**{each.name: given[each.name] for each in fields(part) if each.name in given})
            for place, part in zip(("target", "data", "arrivals", "measure"), PARTS, strict=True)
        }
        return cls(**parts)

    def __post_init__(self) -> None:
        if self.target.stream:
            return
        limits = {metric for text in self.measure.goodput for metric in parse_slo_class(text).limits}
        if limits & set(OF_STREAMS):
            raise ConfigError("goodput", self.measure.goodput, "of an answer that is no stream only e2el can be judged")
        if self.measure.hang_up_share:
            raise ConfigError("hang_up_share", self.measure.hang_up_share, "needs streams, amid which to hang up")

    @property
    def num_warmups(self) -> int:
        """As many as were asked for, else as fit."""
        given = self.measure.num_warmups
        return (0 if self.data.dataset_path else 2) if given is None else given


def _one_of(name: str, value: object, kind: Any) -> None:
    if value not in choices(kind):
        raise ConfigError(name, value, f"must be one of {', '.join(choices(kind))}")


def _above_zero(name: str, value: float | None) -> None:
    if value is not None and not value > 0:
        raise ConfigError(name, value, "must be above 0")
