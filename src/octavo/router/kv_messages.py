"""What passes between a feed and whoever carries its messages."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Live:
    """A batch has come from the event socket. These keep the order in which the engine sent them; some may miss."""

    seq: int
    payload: bytes


@dataclass(frozen=True)
class Replayed:
    """A batch has come in answer to an `AskReplay`."""

    request: int
    seq: int
    payload: bytes


@dataclass(frozen=True)
class ReplayEnd:
    """The answer to an `AskReplay` is complete."""

    request: int


@dataclass(frozen=True)
class Snapshot:
    """The answer to an `AskSnapshot`."""

    request: int
    seq: int
    """Of the last batch that it takes in."""
    epoch: bytes
    payloads: tuple[bytes, ...]


@dataclass(frozen=True)
class Refused:
    """A request cannot be made: there is nobody to ask."""

    request: int


Message = Live | Replayed | ReplayEnd | Snapshot | Refused


@dataclass(frozen=True)
class AskReplay:
    """Ask the engine for its batches from a number on."""

    request: int
    """Comes back with the answers; those to other requests are ignored."""
    start: int


@dataclass(frozen=True)
class AskSnapshot:
    """Ask the engine for all that it holds."""

    request: int


Request = AskReplay | AskSnapshot
