"""How long a server takes to start, seen from outside."""

import re
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from octavo.bench.latency import spread
from octavo.bench.machine import hardware, versions
from octavo.errors import RequestFailedError

PATIENCE_S = 120.0
_SERVE = [sys.executable, "-c", "from octavo.cli.main import main; main()", "--log-level", "debug", "serve"]
_PHASE = re.compile(r"(\w+) (\d+\.\d+) s")
_STARTED = "core started:"


def measure_startup(model: str, repeats: int) -> dict[str, Any]:
    """Starts `octavo serve` so many times, after one start that fills the page cache.

    Returns:
        Spreads, all in seconds from the creation of the process: until the port accepts connections (`listening_s`),
        until /ready answers 200 (`ready_s`), and the phases of the core process, which run beside those.

    Raises:
        RequestFailedError: a start failed; the message holds what the server said last.
    """
    starts = [start_server(model) for _ in range(repeats + 1)][1:]
    return {
        "model": model,
        "repeats": repeats,
        **{name: spread([start[name] for start in starts]) for name in starts[0]},
        "hardware": hardware(),
        "versions": versions(),
    }


def start_server(model: str) -> dict[str, float]:
    """One start, and the end of the server.

    Raises:
        RequestFailedError: it did not get ready.
    """
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = int(taken.getsockname()[1])
    began_s = time.perf_counter()
    command = [*_SERVE, model, "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            listening_s, ready_s, answer = _times(began_s, port, server)
            if answer:  # one that failed ends by itself, and should say why before
                server.send_signal(signal.SIGTERM)
            _, log = server.communicate(timeout=PATIENCE_S)
        except BaseException:
            server.kill()
            raise
    if b" 200 " not in answer:
        told = (log.strip().splitlines() or ["it said nothing"])[-1]
        raise RequestFailedError(f"the server did not get ready (/ready answered {answer[:80]!r}); {told}")
    return {"listening_s": listening_s, "ready_s": ready_s, **core_phases(log)}


def core_phases(log: str) -> dict[str, float]:
    """Phase of the core process's start -> seconds, as its log tells them."""
    told = next((line.partition(_STARTED)[2] for line in log.splitlines() if _STARTED in line), "")
    return {f"core_{name}_s": float(seconds) for name, seconds in _PHASE.findall(told)}


def _times(began_s: float, port: int, server: "subprocess.Popen[str]") -> tuple[float, float, bytes]:
    """Until the port accepts, until /ready answers, and what it answers; nothing if the server ended."""
    while server.poll() is None and time.perf_counter() - began_s < PATIENCE_S:
        try:
            connection = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        except OSError:
            time.sleep(0.001)  # until somebody listens there is nothing to wait on
            continue
        with connection:
            listening_s = time.perf_counter() - began_s
            connection.sendall(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            try:
                answer = connection.recv(1000)
            except ConnectionResetError:  # it fails just now
                answer = b""
            return listening_s, time.perf_counter() - began_s, answer
    return 0.0, 0.0, b""
