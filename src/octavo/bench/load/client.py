"""Requests over connections that are kept open. Times are read as soon as the loop hands over bytes."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from octavo.bench.load.address import address_of
from octavo.bench.load.http_response import BadResponseError, HttpResponse
from octavo.bench.load.reception import Reception
from octavo.bench.load.settings import TargetSettings
from octavo.bench.load.target import request_bytes
from octavo.errors import RequestFailedError

IDLE_S = 2.0
"""A connection that has rested for longer is not used again: servers close such ones, often just when a request is on
its way (uvicorn after 5 s)."""
Connect = Callable[[Callable[[], asyncio.Protocol]], Awaitable[Any]]
"""Opens a connection for a protocol of the given making."""


class _Connection(asyncio.Protocol):
    """One request at a time. `free_since_s` is when the last one ended."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._reception: Reception | None = None
        self._over: asyncio.Future[None] | None = None
        self.transport: asyncio.Transport | None = None
        self.free_since_s = 0.0

    @property
    def usable(self) -> bool:
        """Whether another request can be sent over it."""
        return self.transport is not None and self._clock() - self.free_since_s < IDLE_S

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        now_s = self._clock()
        if self._reception is None:  # bytes that answer nothing: the peer is not to be trusted with another request
            self.close()
            return
        self._reception.feed(data, now_s)
        if self._reception.over:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self.transport = None
        if self._reception is not None:
            self._reception.connection_lost(f"the connection was lost: {exc or 'closed by the server'}")
            self._finish()

    async def send(self, request: bytes, reception: Reception) -> None:
        """Returns when the reception is over."""
        assert self.transport is not None
        self._reception, self._over = reception, asyncio.get_running_loop().create_future()
        self.transport.write(request)
        try:
            await self._over
        finally:
            self._reception = self._over = None

    def close(self) -> None:
        """At once; what was not sent is lost."""
        if self.transport is not None:
            self.transport.abort()

    def _finish(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
        self.free_since_s = self._clock()


class Client:
    """Asks one server. Belongs to one event loop.

    Args:
        connect: None: by TCP, with TLS if the URL says so.
    """

    def __init__(self, settings: TargetSettings, connect: Connect | None = None) -> None:
        self._settings = settings
        self._connect = connect or _by_tcp(settings)
        self._clock = asyncio.get_running_loop().time
        self._free: list[_Connection] = []

    async def ask(self, request: bytes, reception: Reception) -> None:
        """Sends a request and has its answer taken in. Whatever goes wrong is told by the reception, which is over
        then: also where this is cancelled, and the connection closed."""
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                await self._exchange(request, reception)
        except TimeoutError:
            reception.give_up(f"no end after {self._settings.request_timeout_s:g} s")
        except OSError as error:
            reception.connection_lost(f"no connection: {error.strerror or error}")
        except asyncio.CancelledError:
            reception.give_up("interrupted")
            raise

    async def models(self) -> list[str]:
        """Names that the server lists.

        Raises:
            RequestFailedError: it lists none.
        """
        connection = _Whole()
        try:
            async with asyncio.timeout(min(30.0, self._settings.request_timeout_s)):
                transport, _ = await self._connect(lambda: connection)
                transport.write(request_bytes(self._settings, "GET", "/models"))
                body = await connection.body
            transport.abort()
            names = [model["id"] for model in msgspec.json.decode(body)["data"]]
        except OSError as error:  # TimeoutError is one
            problem = error.strerror or str(error) or "no answer"
            raise RequestFailedError(f"{self._settings.url} cannot be asked: {problem}; is the server up?") from None
        except (BadResponseError, msgspec.DecodeError, RecursionError, KeyError, TypeError) as error:
            raise RequestFailedError(f"{self._settings.url} lists no models ({error}); name one with --model") from None
        if not names:
            raise RequestFailedError(f"{self._settings.url} has no model")
        return names

    def close(self) -> None:
        """Closes what is open."""
        for connection in self._free:
            connection.close()
        self._free.clear()

    async def _exchange(self, request: bytes, reception: Reception) -> None:
        connection = await self._connection()
        try:
            await connection.send(request, reception)
        except BaseException:
            connection.close()
            raise
        if reception.keeps_open:
            self._free.append(connection)
        else:
            connection.close()

    async def _connection(self) -> _Connection:
        """The one that has rested for the shortest time, or a new one."""
        while self._free:
            connection = self._free.pop()
            if connection.usable:
                return connection
            connection.close()
        connection = _Connection(self._clock)
        await self._connect(lambda: connection)
        return connection


class _Whole(asyncio.Protocol):
    """Awaits a response that is no stream: `body`."""

    def __init__(self) -> None:
        self._response = HttpResponse()
        self._parts: list[bytes] = []
        self.body: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        try:
            self._parts.append(self._response.feed(data))
        except BadResponseError as error:
            self._end(error)
        if self._response.complete:
            self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self._response.connection_ended()
        self._end(None if self._response.complete else ConnectionResetError("the connection was closed"))

    def _end(self, error: Exception | None) -> None:
        if self.body.done():
            return
        if error is None and self._response.status != 200:
            error = BadResponseError(f"HTTP {self._response.status}")
        if error is None:
            self.body.set_result(b"".join(self._parts))
        else:
            self.body.set_exception(error)


def _by_tcp(settings: TargetSettings) -> Connect:
    address = address_of(settings.url)
    context = ssl.create_default_context() if address.tls else None

    async def connect(make: Callable[[], asyncio.Protocol]) -> Any:
        return await asyncio.get_running_loop().create_connection(make, address.host, address.port, ssl=context)

    return connect
