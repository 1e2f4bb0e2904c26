"""Step records in a file, one object of JSON per line, written by a thread of its own."""

import fcntl
import logging
import os
import stat
import threading
import weakref
from collections import deque
from io import FileIO
from pathlib import Path

import msgspec

from octavo.config import StepMetricsConfig
from octavo.errors import ConfigError
from octavo.request.step_record import StepRecord

PAUSE_S = 0.5
"""Records wait so long at most before they are written."""
MOST_WAITING = 20_000
"""Records that wait while the disk does not take any; beyond it the oldest are lost."""
GOODBYE_S = 5.0
"""How long the thread may take to end."""

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


class StepFile:
    """A `StepSink`. When the file would pass its bound it becomes FILE.1, in place of the one before, and a new one
    begins: twice the bound is the most that both take."""

    wants_beats = False

    def __init__(self, config: StepMetricsConfig, path: str) -> None:
        """Opens the file, to go on behind what stands there.

        Raises:
            ConfigError: it cannot be written, or is written by another server.
        """
        try:
            writer = _Writer(Path(path), config.step_metrics_file_bytes)
        except BlockingIOError:
            problem = "is written by another server; each needs a file of its own"
            raise ConfigError("step_metrics_file", path, problem) from None
        except OSError as error:
            problem = f"cannot be written ({error.strerror or error}); choose a file in a folder that exists"
            raise ConfigError("step_metrics_file", path, problem) from None
        self._waiting: deque[StepRecord] = deque(maxlen=MOST_WAITING)
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=_write_all, args=(writer, self._waiting, self._stop), name="octavo-step-file", daemon=True
        )
        self._thread.start()
        self._end = weakref.finalize(self, _end, self._thread, self._stop)

    def put(self, record: StepRecord) -> None:
        """See `StepSink.put`."""
        self._waiting.append(record)

    def close(self) -> None:
        """See `StepSink.close`."""
        self._end()


def _end(thread: threading.Thread, stop: threading.Event) -> None:
    stop.set()
    if thread is not threading.current_thread():
        thread.join(GOODBYE_S)


def _write_all(writer: "_Writer", waiting: deque[StepRecord], stop: threading.Event) -> None:
    """Until told to stop, and then what is left. A disk that fails ends it: no step waits for a file."""
    try:
        stopping = False
        while not stopping:
            stopping = stop.wait(PAUSE_S)
            writer.write([waiting.popleft() for _ in range(len(waiting))])
    except OSError as error:
        log.error("step records are not written any more: %s", error)
    finally:
        writer.close()


class _Writer:
    """The file, and its bound. One process has it at a time: what one turns over is not what another writes on."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path, self._most_bytes = path, most_bytes
        self._file = self._opened()
        self._num_bytes = os.fstat(self._file.fileno()).st_size

    def _opened(self) -> FileIO:
        """To go on behind the last whole line: what a process that was killed has left of one stays a line of its own.

        Raises:
            BlockingIOError: another process has it.
        """
        if self._path.is_fifo():
            raise OSError("it is a pipe, which cannot begin anew")
        file = FileIO(self._path, "ab+")
        try:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if status.st_size and os.pread(file.fileno(), 1, status.st_size - 1) != b"\n":
                    file.write(b"\n")
        except BaseException:
            file.close()
            raise
        return file

    def write(self, records: list[StepRecord]) -> None:
        lines = bytearray()
        for line in map(_encode, records):
            if self._num_bytes + len(lines) + len(line) >= self._most_bytes:
                self._append(lines)
                lines = bytearray()
                self._turn_over()
            lines += line + b"\n"
        self._append(lines)

    def _append(self, data: bytearray) -> None:
        """Without a buffer: what the disk does not take is not tried again when the file is closed."""
        left = memoryview(data)
        while left:
            written = os.write(self._file.fileno(), left)
            self._num_bytes += written
            left = left[written:]

    def _turn_over(self) -> None:
        self._path.replace(self._path.with_name(self._path.name + ".1"))
        with self._file:
            self._file, self._num_bytes = self._opened(), 0

    def close(self) -> None:
        self._file.close()
