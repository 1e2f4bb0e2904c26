"""A real server on loopback in a thread of its own, with an engine made in its loop."""

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from octavo.config import ServerConfig
from octavo.server.app import build_context
from octavo.server.context import ServerContext
from octavo.server.http_server import HttpServer
from octavo.server.listener import bind
from octavo.server.serving_engine import ServingEngine

Engine = TypeVar("Engine", bound=ServingEngine)
Result = TypeVar("Result")


class RunningServer(Generic[Engine]):
    """A server that accepts requests at `url`. `in_loop` reaches what lives in its thread."""

    url: str
    engine: Engine
    context: ServerContext
    http: HttpServer

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.ended_well: bool | None = None

    def in_loop(self, call: Callable[[], Result]) -> Result:
        """Runs a function in the server's thread and returns its result."""

        async def wrapped() -> Result:
            return call()

        return asyncio.run_coroutine_threadsafe(wrapped(), self._loop).result(timeout=30)


@contextmanager
def running_server(
    start_engine: Callable[[], Awaitable[Engine]],
    config: ServerConfig | None = None,
    stop_engine: Callable[[Engine], Awaitable[None]] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[RunningServer[Engine]]:
    """Runs a server for the length of the block."""
    settings = config or ServerConfig(port=0, shutdown_timeout=5)
    loop = asyncio.new_event_loop()
    running: RunningServer[Engine] = RunningServer(loop)
    ready = threading.Event()

    async def main() -> None:
        running.engine = await start_engine()
        running.context = build_context(running.engine, settings, clock=clock)
        running.http = HttpServer(running.context)

        def announce(url: str) -> None:
            running.url = url
            ready.set()

        try:
            running.ended_well = await running.http.run(bind(settings), announce)
        finally:
            if stop_engine is not None:
                await stop_engine(running.engine)

    failures: list[BaseException] = []

    def thread_main() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(main())
        except BaseException as failure:
            failures.append(failure)
        finally:
            ready.set()

    gc.collect()  # the server freezes what lives in its process: garbage with threads of its own must not be among it
    thread = threading.Thread(target=thread_main, name="server")
    thread.start()
    ready.wait(timeout=120)
    try:
        if failures:
            raise failures[0]
        yield running
    finally:
        if thread.is_alive() and not failures:
            with contextlib.suppress(RuntimeError):  # it has just ended by itself
                loop.call_soon_threadsafe(running.http.stop)
        thread.join(timeout=60)
        if thread.is_alive():
            raise RuntimeError("the server did not stop")
