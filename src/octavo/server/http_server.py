"""The HTTP server's life: announce, serve, drain, stop; or notice that the engine died, say so, and go down."""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial

import uvicorn

from octavo.errors import EngineDeadError
from octavo.server.app import build_app
from octavo.server.context import ServerContext
from octavo.server.errors import shutting_down
from octavo.server.http_protocol import KEEP_ALIVE_S, MAX_HEAD_BYTES, BoundedProtocol, connection_limits
from octavo.server.listener import address_of
from octavo.server.tls import tls_context

log = logging.getLogger(__name__)

DEATH_NOTICE_S = 2.0
"""How long a server with a dead engine still answers, so that clients and probes learn why."""
PING_S = 5.0
"""How often the engine is asked for a sign of life."""
GOODBYE_S = 5
"""How long uvicorn waits for connections to close once nothing is in flight."""


SWITCH_S = 0.0005
"""How long a thread that is busy beside the event loop may keep it from running, each time that it wants to. Python's
5 ms would be waited for at every write to a socket, so for seconds a step where many streams run."""


class _Uvicorn(uvicorn.Server):
    """uvicorn without signal handlers of its own, telling when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals start a drain, which uvicorn knows nothing of."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to accept, then says so."""
        await super().startup(sockets)
        self.listening.set()


class HttpServer:
    """One app on one socket. Create and run it in the loop of the engine."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        config = uvicorn.Config(
            build_app(server),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http=partial(BoundedProtocol, limits=connection_limits(server.config)),  # type: ignore[arg-type] # any factory
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            timeout_keep_alive=KEEP_ALIVE_S,
            server_header=False,
            timeout_graceful_shutdown=GOODBYE_S,
        )
        config.load()
        config.ssl = tls_context(server.config)
        self._uvicorn = _Uvicorn(config)

    def stop(self) -> None:
        """Starts the drain; a second call ends it at once."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def run(self, listener: socket.socket, announce: Callable[[str], None]) -> bool:
        """Serves until `stop` or the engine's death; owns and closes the listener.

        Args:
            announce: called once with the address when requests are accepted.

        Returns:
            True after an orderly stop, False if the engine died.
        """
        gc.freeze()  # what lives now lives for good; a full collection would walk it all and stop every stream
        sys.setswitchinterval(SWITCH_S)
        serving = asyncio.create_task(self._uvicorn.serve(sockets=[listener]))
        death = asyncio.create_task(self._death())
        stop = asyncio.create_task(self._stop.wait())
        listening = asyncio.create_task(self._uvicorn.listening.wait())
        try:
            await asyncio.wait({serving, listening}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                announce(address_of(listener, self._server.config))
            await asyncio.wait({serving, death, stop}, return_when=asyncio.FIRST_COMPLETED)
            if death.done():
                await self._mourn(death.result())
            elif stop.done():
                await self._drain()
            self._uvicorn.should_exit = True
            await serving
            return not death.done()
        finally:
            if self._server.tracer is not None:
                await self._server.tracer.close()
            for task in (serving, death, stop, listening):
                task.cancel()
            await asyncio.gather(serving, death, stop, listening, return_exceptions=True)

    async def _death(self) -> str:
        """Returns why once the engine is gone, or has not answered for `engine_timeout`: a process that hangs is as
        good as dead, but nobody would say so."""
        engine, patience = self._server.engine, self._server.config.engine_timeout
        death = asyncio.create_task(engine.wait_dead())
        try:
            while not death.done():
                # Python 3.11's wait_for may swallow a cancellation, and this would go on for ever.
                async with asyncio.timeout(patience):
                    with contextlib.suppress(EngineDeadError):
                        await engine.load()
                await asyncio.wait({death}, timeout=min(PING_S, patience))
            return death.result()
        except TimeoutError:
            return f"it has not answered for {patience:g} s"
        finally:
            death.cancel()

    async def _mourn(self, reason: str) -> None:
        log.error("the engine died: %s", reason)
        self._server.state.die(reason)
        await asyncio.sleep(DEATH_NOTICE_S)

    async def _drain(self) -> None:
        """Waits for running requests; the second signal cuts the wait short."""
        state, patience = self._server.state, self._server.config.shutdown_timeout
        if state.in_flight and patience:
            told = "draining: %d requests have up to %g s to end; a second signal ends them at once"
            log.warning(told, state.in_flight, patience)
        drain = asyncio.create_task(state.drain(patience))
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait({drain, hurry}, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not drain.done():
            log.warning("told again to stop: %d requests are ended now", state.in_flight)
            state.cut_off_now(shutting_down())
        await drain


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Calls `stop` on SIGTERM and SIGINT while the block runs; for the main thread's loop."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
