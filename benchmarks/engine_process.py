"""An engine as a child process that answers orders, and what the system says about it and its children.

The child speaks the protocol of benchmarks/peers/protocol.py. Between orders it is stopped (SIGSTOP), so that waiting
engines take no time from the one that is measured, however their threads wait.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
CLOSE_S = 20


class EngineFailedError(Exception):
    """An engine cannot do what was ordered; the message is its own."""


@dataclass(frozen=True)
class EngineSpec:
    """How to start an engine."""

    name: str
    command: Sequence[str]
    setting: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)


class EngineProcess:
    """A running engine, in a session of its own with all its children. Starts at once and is ready for orders."""

    def __init__(self, spec: EngineSpec, log: Path, timeout_s: float) -> None:
        self._log, self._timeout_s = log, timeout_s
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                spec.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | spec.environment,
                start_new_session=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._orders, self._answers = self._process.stdin, self._process.stdout
        try:
            self.facts = self.ask(spec.setting)
        except BaseException:  # also when this program is told to end
            self.close()
            raise

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Gives an order and waits for the answer.

        Raises:
            EngineFailedError: the engine says so, died, or took too long.
        """
        with self._bounded():
            try:
                self._orders.write(json.dumps(order) + "\n")
                self._orders.flush()
                answer: dict[str, Any] | None = json.loads(self._answers.readline() or "null")
            except BrokenPipeError:
                answer = None
        if answer is None:
            raise EngineFailedError(f"ended with status {self._process.wait()}: {self._last_words()}")
        if "error" in answer:
            raise EngineFailedError(answer["error"])
        return answer

    def pause(self) -> None:
        """Stops it where it stands."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on."""
        self._signal(signal.SIGCONT)

    @property
    def session(self) -> int:
        """The session's number, which is its process id."""
        return self._process.pid

    def pids(self) -> list[int]:
        """It and its children."""
        return session_pids(self._process.pid)

    def close(self) -> None:
        """Ends it and its children."""
        self.resume()
        with contextlib.suppress(BrokenPipeError):
            self._orders.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._answers.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    @contextlib.contextmanager
    def _bounded(self) -> Iterator[None]:
        timer = threading.Timer(self._timeout_s, self._signal, [signal.SIGKILL])
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _last_words(self) -> str:
        return " ".join(self._log.read_text(errors="replace").split("\n")[-4:])


def session_pids(session: int) -> list[int]:
    """Processes of a session."""
    return [pid for pid, fields in _stats() if int(fields[3]) == session]


def cpu_seconds(session: int) -> float:
    """Processor time of a session's living processes so far."""
    ticks = sum(int(fields[11]) + int(fields[12]) for _, fields in _stats() if int(fields[3]) == session)
    return ticks / CLOCK_TICKS


def machine_cpu_seconds() -> float:
    """Processor time that anybody has used or that the hypervisor has kept, on all cores."""
    ticks = [int(value) for value in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / CLOCK_TICKS


def peak_memory_bytes(pids: Sequence[int]) -> int:
    """Sum of the processes' largest resident sizes (VmHWM). Pages of mapped files count once they were touched, as do
    shared ones in each process."""
    return sum(_status_bytes(pid, "VmHWM") for pid in pids)


def anonymous_bytes(pids: Sequence[int]) -> int:
    """Resident memory now that no file holds (RssAnon)."""
    return sum(_status_bytes(pid, "RssAnon") for pid in pids)


@contextlib.contextmanager
def busy_process(python: str, limit_s: float) -> Iterator[None]:
    """One process that computes without end (at most `limit_s`), on no particular core."""
    code = "import sys, time\nend = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: pass"
    busy = subprocess.Popen([python, "-c", code, str(limit_s)])
    try:
        time.sleep(0.3)  # until its loop runs
        yield
    finally:
        busy.kill()
        busy.wait()


def _stats() -> Iterator[tuple[int, list[str]]]:
    """Per process its id and the fields of /proc/PID/stat after the name: state, parent, group, session, ..."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield int(entry.name), (entry / "stat").read_text().rpartition(")")[2].split()


def _status_bytes(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0
