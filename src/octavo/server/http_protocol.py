"""What one connection may cost: uvicorn's HTTP/1.1 protocol with bounds on the time that a client takes."""

import asyncio
import resource
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from octavo.config import ServerConfig
from octavo.server.errors import ApiError, took_too_long

MAX_HEAD_BYTES = 64 * 2**10
"""Request line and headers together, up to a piece more."""
PIECE_BYTES = 4 * 2**10
KEEP_ALIVE_S = 30
"""How long an idle connection is kept: longer than clients' pools keep theirs, so that they are the ones to close."""
OTHER_DESCRIPTORS = 128
"""File descriptors that are not for connections: models, sockets of the engine, what libraries open."""


@dataclass(frozen=True)
class ConnectionLimits:
    """Bounds of the connections of one process."""

    max_connections: int
    receive_timeout_s: float
    """For a request's head, and for what a client still sends of a body that nobody waits for."""


def connection_limits(config: ServerConfig) -> ConnectionLimits:
    """As configured; without a number as many connections as the process may open."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = config.max_connections or max(OTHER_DESCRIPTORS, descriptors - OTHER_DESCRIPTORS)
    return ConnectionLimits(most, config.receive_timeout)


class BoundedProtocol(H11Protocol):
    """Closes connections beyond the limit, and those whose client does not come to the end of what it sends.

    The timer runs while the client owes us something:

        connect   head ..... body .......... answer ......   rest of a body   idle
        |<------------->|    (read_body's time-out)          |<---------->|   (keep-alive)
    """

    def __init__(self, *, limits: ConnectionLimits, **given: Any) -> None:
        super().__init__(**given)
        self._limits = limits
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """See asyncio."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            self._refuse(_too_many_connections())
        else:
            self._start_timer()

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        while data and not self.transport.is_closing():
            # h11 bounds only heads that are incomplete, so it must see the long ones in pieces.
            size = PIECE_BYTES if self.conn.their_state is h11.IDLE else len(data)
            super().data_received(data[:size])
            data = data[size:]
        sends_rest = self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE
        if self.conn.their_state is h11.IDLE or sends_rest:
            self._start_timer()
        else:
            self._stop_timer()

    def on_response_complete(self) -> None:
        """Called by uvicorn, which begins the request that came in one piece with the one before. Of a half one it
        would not know before more of it comes."""
        super().on_response_complete()
        rest, _ = self.conn.trailing_data
        if rest and self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._stop_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Called for what is no HTTP; the reason is not passed on."""
        self._refuse(_no_request() if self._nothing_runs() else _no_body())

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self._limits.receive_timeout_s, self._give_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._refuse(took_too_long("the request's head", self._limits.receive_timeout_s))

    def _refuse(self, refusal: ApiError) -> None:
        """Says why, if nothing was said yet, and closes."""
        self._stop_timer()
        is_silent = self._nothing_runs() or not self.cycle.response_started
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and is_silent:
            self.transport.write(_encoded(refusal))  # whoever waits for the body is told that the client is gone
        self.transport.close()

    def _nothing_runs(self) -> bool:
        return self.cycle is None or self.cycle.response_complete


def _encoded(refusal: ApiError) -> bytes:
    """A whole answer, written without h11: its state may not allow one any more."""
    body = msgspec.json.encode(refusal.body())
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **refusal.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}\r\n{lines}\r\n".encode() + body


def _too_many_connections() -> ApiError:
    message = "the server has as many connections as it may; try again later"
    return ApiError(503, message, code="too_many_connections", headers={"Retry-After": "1", "Connection": "close"})


def _no_body() -> ApiError:
    message = "the request's body is not in chunks as HTTP/1.1 has them, or longer than its Content-Length"
    return ApiError(400, message, code="invalid_http", headers={"Connection": "close"})


def _no_request() -> ApiError:
    message = f"that is no HTTP/1.1 request, or its line and headers are longer than {MAX_HEAD_BYTES} bytes"
    return ApiError(400, message, code="invalid_http", headers={"Connection": "close"})
