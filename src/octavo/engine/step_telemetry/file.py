"""Step records in a file, one object of JSON per line, written by a thread of its own."""

import contextlib
import logging
import threading
import weakref
from collections import deque
from pathlib import Path
from typing import BinaryIO

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
            ConfigError: it cannot be written.
        """
        try:
            writer = _Writer(Path(path), config.step_metrics_file_bytes)
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
    with contextlib.closing(writer):
        try:
            stopping = False
            while not stopping:
                stopping = stop.wait(PAUSE_S)
                writer.write([waiting.popleft() for _ in range(len(waiting))])
        except OSError as error:
            log.error("step records are not written any more: %s", error)


class _Writer:
    """The file, and its bound."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path, self._most_bytes = path, most_bytes
        self._file = self._opened()

    def _opened(self) -> BinaryIO:
        return self._path.open("ab")

    def write(self, records: list[StepRecord]) -> None:
        for line in map(_encode, records):
            if self._file.tell() + len(line) >= self._most_bytes:
                self._file.close()
                self._path.replace(self._path.with_name(self._path.name + ".1"))
                self._file = self._opened()
            self._file.write(line + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()
