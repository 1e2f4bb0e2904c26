"""What a further API process is told to serve."""

from pathlib import Path

import msgspec

from octavo.config import ServerConfig
from octavo.engine.core_hold import JoinOrder
from octavo.engine.wire import decode_path, encode_path
from octavo.log import LogSettings


class ApiOrder(msgspec.Struct, frozen=True, kw_only=True):
    """All that it needs; it crosses a private pair of sockets, since it holds API keys."""

    server: ServerConfig
    core: JoinOrder
    """In its folder API processes share memory; the client's number is the process's, too. The first is 0."""
    log: LogSettings

    @property
    def process(self) -> int:
        """Which API process it is."""
        return self.core.client

    @property
    def folder(self) -> Path:
        """Where API processes share memory."""
        return self.core.folder


BUSY_FILE, USAGE_FILE = "busy", "usage"
"""Files of shared memory in that folder: of `BusyBoard`, of `UsageLedger`. They vanish with it, once all have them."""


def encode_order(order: ApiOrder) -> bytes:
    """The order as JSON."""
    return msgspec.json.encode(order, enc_hook=encode_path)


def decode_order(payload: bytes) -> ApiOrder:
    """Reads what `encode_order` wrote."""
    return msgspec.json.decode(payload, type=ApiOrder, dec_hook=decode_path)
