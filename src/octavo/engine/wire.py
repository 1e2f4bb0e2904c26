"""How clients and core process speak: message kinds, codecs and the socket addresses in a private folder.

Every message is two frames, `[kind, payload]`, the payload in msgpack of the struct named below:

    client -> core   request GenerateRequest | control ControlRequest | note Delivered
    core -> client   ready EngineInfo | failed Failure | outputs list[RequestOutput] | reply ControlReply
                     | dead Failure
"""

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from octavo.config import EngineConfig
from octavo.engine.output import EngineInfo
from octavo.engine.refusals import refused_output
from octavo.errors import ConfigError
from octavo.hub.files import ModelFiles
from octavo.log import LogSettings
from octavo.request.control import ControlReply, ControlRequest, Refusal
from octavo.request.ledger import Delivered
from octavo.request.outputs import RequestOutput
from octavo.request.request import GenerateRequest


class Kind(StrEnum):
    """First frame of a message."""

    REQUEST = "request"
    CONTROL = "control"
    NOTE = "note"
    READY = "ready"
    FAILED = "failed"
    OUTPUTS = "outputs"
    REPLY = "reply"
    DEAD = "dead"

    @property
    def frame(self) -> bytes:
        return self.value.encode()


class Addresses(NamedTuple):
    """Of the sockets that a client binds, and the core connects to."""

    input: str
    output: str
    load: str
    """See `load_window`."""


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a core could not start or had to end: the error's class name (in octavo.errors) and its message."""

    error: str
    message: str
    field: str = ""
    """Of a ConfigError: the setting, and its value for people, and what is wrong with it."""
    value: str | int | float | None = None
    problem: str = ""


def failure_of(error: BaseException) -> Failure:
    """What crosses of an error."""
    name, message = type(error).__name__, str(error)
    if not isinstance(error, ConfigError):
        return Failure(error=name, message=message)
    value = error.value if isinstance(error.value, str | int | float | None) else str(error.value)
    return Failure(error=name, message=message, field=error.field, value=value, problem=error.problem)


class StartOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a core process is told on its standard input."""

    config: EngineConfig
    model: ModelFiles
    clients: list[Addresses]
    """Whom it serves: the one that gives the order first."""
    log: LogSettings = LogSettings()


def encode_path(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} does not cross to the core process")


def decode_path(kind: type, value: object) -> object:
    if kind is Path:
        return Path(str(value))
    raise TypeError(f"{kind.__name__} does not cross to the core process")


def encode_order(order: StartOrder) -> bytes:
    """The order as one line of JSON."""
    return msgspec.json.encode(order, enc_hook=encode_path) + b"\n"


def decode_order(line: bytes) -> StartOrder:
    """Reads what `encode_order` wrote."""
    return msgspec.json.decode(line, type=StartOrder, dec_hook=decode_path)


encoder = msgspec.msgpack.Encoder()
decode_request = msgspec.msgpack.Decoder(GenerateRequest).decode
decode_control = msgspec.msgpack.Decoder(ControlRequest).decode
decode_note = msgspec.msgpack.Decoder(Delivered).decode
decode_outputs = msgspec.msgpack.Decoder(list[RequestOutput]).decode
decode_reply = msgspec.msgpack.Decoder(ControlReply).decode
decode_info = msgspec.msgpack.Decoder(EngineInfo).decode
decode_failure = msgspec.msgpack.Decoder(Failure).decode


class _RequestName(msgspec.Struct):
    request_id: str


class _ControlName(msgspec.Struct):
    call_id: int


_decode_request_name = msgspec.msgpack.Decoder(_RequestName).decode
_decode_control_name = msgspec.msgpack.Decoder(_ControlName).decode


def unreadable_request(payload: bytes, error: msgspec.ValidationError) -> RequestOutput:
    """The answer to a request of which a field cannot be read.

    Raises:
        msgspec.ValidationError: not even its id can.
    """
    return refused_output(_decode_request_name(payload).request_id, _unreadable(error))


def unreadable_control(payload: bytes, error: msgspec.ValidationError) -> ControlReply:
    """The same for a control request."""
    return ControlReply(call_id=_decode_control_name(payload).call_id, refusal=_unreadable(error))


def _unreadable(error: msgspec.ValidationError) -> Refusal:
    problem, _, place = str(error).partition(" - at `")
    field = place.strip("$.`").rpartition(".")[2] or "request"
    return Refusal(message=problem, status=400, field=field, value="(unreadable)")


HIGH_WATER_MARK = 100_000
"""Messages a socket may hold; the scheduler's bounded queue refuses long before."""

RECONNECT_MS = 5
"""How soon the core looks again for sockets that the client has not bound yet."""


def addresses(folder: Path, client: int = 0) -> Addresses:
    """Those of a client, inside a folder that only this user can enter."""
    return Addresses(*(f"ipc://{folder}/{name}{client}" for name in Addresses._fields))
