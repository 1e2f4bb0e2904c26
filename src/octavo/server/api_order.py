"""What a further API process is told to serve."""

from pathlib import Path

import msgspec

from octavo.config import EngineConfig, ServerConfig
from octavo.engine.wire import decode_path, encode_path
from octavo.hub.files import ModelFiles
from octavo.log import LogSettings


class ApiOrder(msgspec.Struct, frozen=True, kw_only=True):
    """All that it needs; it crosses a private pair of sockets, since it holds API keys."""

    server: ServerConfig
    engine: EngineConfig
    model: ModelFiles
    folder: Path
    """Where the core's clients bind their sockets, and API processes share memory."""
    core_pid: int
    process: int
    """Which API process it is, and which client of the core; the first is 0."""
    log: LogSettings


BUSY_FILE, USAGE_FILE = "busy", "usage"
"""Files of shared memory in that folder: of `BusyBoard`, of `UsageLedger`. They vanish with it, once all have them."""


def encode_order(order: ApiOrder) -> bytes:
    """The order as JSON."""
    return msgspec.json.encode(order, enc_hook=encode_path)


def decode_order(payload: bytes) -> ApiOrder:
    """Reads what `encode_order` wrote."""
    return msgspec.json.decode(payload, type=ApiOrder, dec_hook=decode_path)
