"""An `octavo serve` of one's own: started on a free port, waited for, ended."""

import contextlib
import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

START = "from octavo.cli.main import main; main()"
READY_S = 60.0


@contextlib.contextmanager
def served(model: str, threads: int, *flags: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A server that answers /ready with 200; its port and its process, which leads a session of its own."""
    port = _free_port()
    command = [sys.executable, "-c", START, "serve", model, "--port", str(port), "--threads", str(threads), *flags]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        _wait_ready(server, port)
        yield port, server
    finally:
        server.terminate()
        server.wait()


def seconds_to_ready(model: str, threads: int) -> float:
    """From the start of the process to the first 200 of /ready, looked for every few milliseconds."""
    begin = time.perf_counter()
    with served(model, threads):
        return time.perf_counter() - begin


def _wait_ready(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + READY_S
    while not _is_ready(port):
        if server.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"octavo serve is not ready after {READY_S} s (exit status {server.poll()})")
        time.sleep(0.005)


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
