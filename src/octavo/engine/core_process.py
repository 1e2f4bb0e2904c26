"""Starting a core process, as early as possible: it imports what it needs while its order is still being found."""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from types import TracebackType
from typing import Self

import octavo.log
from octavo.config import EngineConfig
from octavo.engine import wire
from octavo.engine.core_hold import JoinOrder
from octavo.engine.socket_folder import SocketFolder
from octavo.engine.wire import StartOrder
from octavo.hub.files import ModelFiles

SHUTDOWN_PATIENCE_S = 5.0
"""How long an orderly exit may take before the process is killed."""

_PROGRAM = """
import gc, sys
gc.disable()
try:
    from octavo.engine.process import main
except ImportError as error:
    sys.exit(f"octavo: {error}")
sys.exit(main())
"""
"""What is loaded at start stays for good: looking for garbage in it would take a tenth of the time. An installation
that lacks a part, or has a stale one, is told in one line."""


class CoreProcess:
    """A process of `octavo.engine.process` and the private folder of its sockets. As a context manager it leaves
    neither behind."""

    client = 0
    """Number of the client that has started it."""
    is_owned = True
    """That client ends it."""

    def __init__(self) -> None:
        """Starts the process, which waits for its order on standard input. That pipe stays open for the life of the
        client: when it closes, the process ends at once."""
        self._sockets = SocketFolder()
        self.folder = self._sockets.path
        self._num_awaited = 1
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM], stdin=subprocess.PIPE, env=same_imports()
            )
        except BaseException:
            self.hide_sockets()
            raise

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def load(self, config: EngineConfig, model: ModelFiles, num_clients: int = 1) -> None:
        """Gives the order to load a model and to serve so many clients; once. A process that is gone already is noticed
        by `wait`."""
        self._num_awaited = num_clients
        clients = [wire.addresses(self.folder, client) for client in range(num_clients)]
        order = StartOrder(config=config, model=model, clients=clients, log=octavo.log.current())
        pipe = self._process.stdin
        if pipe is None:
            raise RuntimeError("the core process was started without a pipe")
        try:
            pipe.write(wire.encode_order(order))
            pipe.flush()
        except BrokenPipeError:
            return

    async def wait(self) -> int:
        """Waits for the end; returns the exit code.

        In a thread that no exit waits for: a program that ends without closing its engine must not wait for a core
        that waits for the program's end.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[int] = loop.create_future()

        def tell(code: int) -> None:
            if not ended.done():
                ended.set_result(code)

        def watch() -> None:
            code = self._process.wait()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                loop.call_soon_threadsafe(tell, code)

        threading.Thread(target=watch, name="core-watch", daemon=True).start()
        return await ended

    def join_order(self, config: EngineConfig, model: ModelFiles, client: int) -> JoinOrder:
        """What another process needs to become this client, of those that `load` has announced."""
        return JoinOrder(config=config, model=model, folder=self.folder, core_pid=self.pid, client=client)

    def note_connection(self) -> None:
        """One more client's connections stand. After the last one nobody needs the sockets' names any more."""
        self._num_awaited -= 1
        if self._num_awaited == 0:
            self.hide_sockets()

    def hide_sockets(self) -> None:
        """Removes the folder. Connections that stand outlive their names, and a client that is killed leaves no
        litter. Idempotent."""
        self._sockets.remove()

    def hang_up(self) -> None:
        """Closes the pipe: the process drops everything and ends. Idempotent."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it died before it read its order, which close() sends again
                self._process.stdin.close()

    def close(self) -> None:
        """Ends the process if it has not ended, by force if it must be; idempotent."""
        self.hide_sockets()
        self.hang_up()
        try:
            self._process.wait(SHUTDOWN_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def same_imports() -> dict[str, str]:
    """The environment in which a new interpreter imports what this one does; `-P` keeps it from looking into the
    working directory first."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
