"""Figures for people and for programs."""

import json
import math
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from octavo.bench.machine import hardware, versions
from octavo.engine.output import EngineInfo
from octavo.errors import ConfigError


def complete_figures(figures: dict[str, Any], info: EngineInfo, settings: dict[str, Any]) -> dict[str, Any]:
    """Figures with what they depend on: machine, versions, and the configuration as given and as it came out."""
    engine = {
        name: getattr(info, name)
        for name in (
            *("architecture", "max_model_len", "block_size", "num_blocks", "kv_bytes_per_token", "weight_bytes"),
            *("max_num_seqs", "max_num_batched_tokens", "threads", "isa"),
        )
    }
    config = {"given": _plain(settings), "engine": engine}
    return figures | {"hardware": hardware(), "versions": versions(), "config": config}


def for_server(figures: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Figures of a server, which may stand elsewhere: machine and versions are the client's. Secrets stay out."""
    given = {name: value for name, value in settings.items() if name not in ("api_key", "header")}
    client = {"hardware": hardware(), "versions": versions()}
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return figures | {"date": date, "client": client, "config": _plain(given)}


def as_lines(figures: dict[str, Any]) -> str:
    """The figures for a terminal, one a line."""
    shown = {name: value for name, value in figures.items() if name not in ("hardware", "versions", "config")}
    return "\n".join(f"{name:24} {_shown(value)}" for name, value in shown.items())


def require_place(file: Path | None) -> None:
    """Told before a measurement, which may take hours.

    Raises:
        ConfigError: figures could not be written there.
    """
    if file is None:
        return
    if not file.parent.is_dir() or file.is_dir():
        problem = "is a folder" if file.is_dir() else f"there is no folder {file.parent}"
        raise ConfigError("--json", str(file), f"{problem}; choose a file in a folder that exists")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ConfigError("--json", str(file), "cannot be written (Permission denied); choose another place")


def write_json(figures: dict[str, Any], file: Path) -> None:
    """Writes all figures.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        file.write_text(json.dumps(figures, indent=2) + "\n")
    except OSError as error:
        raise ConfigError("--json", str(file), f"cannot be written ({error.strerror}); choose another place") from None


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """As JSON has it, which knows no infinity."""
    return {name: value if _is_plain(value) else str(value) for name, value in settings.items()}


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | bool) or (isinstance(value, float) and math.isfinite(value))


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{name} {_shown(part)}" for name, part in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
