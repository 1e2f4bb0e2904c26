"""Rendered profiles and the files they go to (`--profile`)."""

import contextlib
import gzip
import logging
import os
import re
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from octavo.engine.chrome_trace import chrome_trace, describe
from octavo.engine.profiler import Profiler
from octavo.errors import ConfigError, ProfileError
from octavo.request.orders import StartProfile
from octavo.request.profile import Profile, ProfileEnd

log = logging.getLogger(__name__)

MAX_NAME_CHARS = 100
"""Of a model's name in that of a file."""
FILE_ENDINGS = (".json", ".json.gz")


@dataclass(frozen=True)
class Trace:
    """A profile that has ended, as a Chrome trace."""

    json: bytes
    """What Perfetto and chrome://tracing open."""
    about: dict[str, Any]
    """How many steps, requests and events it has, why it ended, what it lacks; `otherData` of the trace."""
    path: Path | None = None
    """Where it was written, with `--profile FOLDER`."""

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes it, whole or not at all; compressed if the name ends in `.gz`.

        Raises:
            OSError: it cannot be written.
        """
        target = Path(path)
        packed = gzip.compress(self.json, 6) if target.suffix == ".gz" else self.json
        with NamedTemporaryFile(dir=target.parent, prefix=target.name, delete=False) as file:
            try:
                file.write(packed)
                file.flush()
                Path(file.name).replace(target)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise


def trace_of(profile: Profile, model: str, folder: Path | None = None) -> Trace:
    """Renders a profile; into a file of its own, if there is a folder for it. Where that cannot be written, which is
    logged, the trace is still there for who asked."""
    trace = Trace(chrome_trace(profile, model), describe(profile, model))
    if folder is None:
        return trace
    moment = datetime.fromtimestamp(profile.begin_unix_s, UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
    path = folder / f"{re.sub(r'[^A-Za-z0-9._-]', '-', model)[-MAX_NAME_CHARS:]}-{moment}Z-{profile.number}.json"
    try:
        trace.write(path)
    except OSError as error:
        log.error("the trace cannot be written to %s, so whoever asked gets it: %s", path, error.strerror)
        return trace
    return Trace(trace.json, trace.about, path)


def folder_of(profile: str | None) -> Path | None:
    """The folder that `--profile` names; None: it names none."""
    return None if profile is None or profile.endswith(FILE_ENDINGS) else Path(profile)


def file_of(profile: str | None) -> Path | None:
    """The file that `--profile` names; None: it names none."""
    return None if profile is None or not profile.endswith(FILE_ENDINGS) else Path(profile)


def require_writable(profile: str | None) -> None:
    """Makes the folder that `--profile` names, if there is none yet.

    Raises:
        ConfigError: nothing can be written where it says.
    """
    if profile is None:
        return
    folder = folder_of(profile) or Path(profile).parent
    try:
        if folder_of(profile) is not None:
            folder.mkdir(exist_ok=True)
        elif Path(profile).is_dir():
            raise ConfigError("profile", profile, "is a folder; end its name otherwise, or name a file in it")
        with NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError("profile", profile, f"{folder} cannot be written to: {error.strerror}") from None


class TraceFile:
    """The one trace of a core's whole life, as far as it has room: begun at once, written when it is full, or at the
    core's end. What cannot be written is logged: nobody's request fails for it."""

    def __init__(self, path: Path, model: str, profiler: Profiler) -> None:
        self._path = path
        self._model = model
        self._profiler = profiler
        self._number = profiler.start(StartProfile())
        self._writing: threading.Thread | None = None
        profiler.when_ended = self._write_beside

    def _write_beside(self) -> None:
        """The core goes on meanwhile."""
        if self._profiler.state().number == self._number:
            profile = self._profiler.stop(self._number)
            self._writing = threading.Thread(target=self._write, args=(profile,), name="octavo-trace")
            self._writing.start()

    def close(self) -> None:
        """Writes what there is, if it has not been written or fetched by somebody; waits for it."""
        if self._writing is not None:
            self._writing.join()
            return
        with contextlib.suppress(ProfileError):  # somebody has fetched it
            self._write(self._profiler.stop(self._number, ProfileEnd.CLOSED))

    def _write(self, profile: Profile) -> None:
        try:
            trace_of(profile, self._model).write(self._path)
        except OSError as error:
            log.error("the trace cannot be written to %s: %s", self._path, error)
