"""Logging: one handler on stderr, in text or in JSON, for whatever a program of ours and its libraries say. A library
user's own set-up is left alone."""

import json
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
ENVIRONMENT_VARIABLE = "OCTAVO_LOG_LEVEL"

ACCESS = "octavo.access"
"""The logger of access lines. Whether there are any is a setting of the server, not a level."""

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
"""What a client may put into a path must not begin a line of its own, nor speak to a terminal."""


def default_level() -> str:
    """The level from the environment, else `warning`."""
    level = os.environ.get(ENVIRONMENT_VARIABLE, "warning").lower()
    return level if level in LEVELS else "warning"


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """What is told, and how; crosses to the processes that a program starts."""

    level: str = "warning"
    """One of `LEVELS`, for `octavo` loggers. Libraries are heard from `warning` on."""
    format: str = "text"
    """One of `FORMATS`."""


_current: LogSettings | None = None


def current() -> LogSettings:
    """As `set_up` was called last in this process, else the default."""
    return LogSettings(level=default_level()) if _current is None else _current


def set_up(settings: LogSettings, role: str = "octavo") -> None:
    """Sends what all loggers say to stderr. For programs (the CLI, the processes of a server), not for
    `import octavo`.

    Args:
        role: which process of the server speaks: server, core, api 1, ...
    """
    global _current
    _current = settings
    handler = _Handler(sys.stderr)
    handler.setFormatter(JsonFormatter(role) if settings.format == "json" else TextFormatter(role))
    root = logging.getLogger()
    for other in [one for one in root.handlers if isinstance(one, _Handler)]:
        root.removeHandler(other)
    root.addHandler(handler)
    logging.getLogger("octavo").setLevel(settings.level.upper())
    logging.getLogger(ACCESS).setLevel(logging.INFO)
    logging.captureWarnings(True)


class _Handler(logging.StreamHandler[Any]):
    """Ours, to be found again."""


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """What a record carries beside its message: `log.info(..., extra={"fields": {...}})`."""
    fields: Mapping[str, object] = record.__dict__.get("fields", {})
    return fields


class TextFormatter(logging.Formatter):
    """One line per record, and its traceback if it has one; fields as `name=value`, those without a value left out."""

    def __init__(self, role: str) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")
        self._prefix = "" if role in ("octavo", "server") else f"[{role}] "

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        """See logging."""
        shown = [f"{name}={value}" for name, value in fields_of(record).items() if value not in (None, "")]
        record.message = " ".join([self._prefix + record.message, *shown]).translate(_CONTROL)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One JSON object per record and line: time (UTC), level, logger, process (its role), pid, message, then the
    record's fields, and `exception` with the traceback."""

    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        """See logging."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": self._role,
            "pid": record.process,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
