"""Starting the further API processes of a server: light on imports, so that they start before everything else is loaded
here, and import what they need meanwhile."""

import contextlib
import socket
import subprocess
import sys
from types import TracebackType
from typing import Self

from octavo.engine.core_process import same_imports

_PROGRAM = "import sys; from octavo.server.api_process import main; sys.exit(main(*map(int, sys.argv[1:])))"
END_PATIENCE_S = 1.0
"""How long one may take to end once its wire is cut."""


class ApiProcess:
    """One further process and this end of the wire to it. Ends at once when the wire is cut."""

    def __init__(self, number: int, listener: socket.socket) -> None:
        """Starts it: it imports what it needs, and waits for its order.

        Args:
            number: which of the server's API processes it is; the first is 0.
            listener: what it accepts from, too.
        """
        self.number = number
        self.end, other_end = socket.socketpair()
        files = (other_end.fileno(), listener.fileno())
        with other_end:
            self.popen = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, *map(str, files)],
                stdin=subprocess.DEVNULL,
                pass_fds=files,
                env=same_imports(),
            )

    def send(self, message: bytes) -> None:
        """Sends what is there before the event loop takes charge of the wire."""
        with contextlib.suppress(ConnectionError):  # it has ended, which whoever waits for it notices
            self.end.sendall(message)

    def close(self) -> None:
        """Ends it, by force if it must be; idempotent."""
        self.end.close()
        try:
            self.popen.wait(END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


class ApiSpawn:
    """All further processes of a server. As a context manager it leaves none behind."""

    def __init__(self, count: int, listener: socket.socket) -> None:
        """Starts them."""
        self.processes: list[ApiProcess] = []
        try:
            for number in range(1, count + 1):
                self.processes.append(ApiProcess(number, listener))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends all that are left; idempotent."""
        for process in self.processes:
            process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
