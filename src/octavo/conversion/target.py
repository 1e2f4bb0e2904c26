"""Where a result goes: whole and verified, or not at all."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from octavo.errors import ConfigError

FIELD = "output"


def write_whole(path: Path, num_bytes: int, write: Callable[[Path], None], *, force: bool) -> None:
    """Lets a file or folder appear at `path` by one renaming, when it is done.

    Args:
        num_bytes: how long it will be, so that a disk that is too full is told before anything is written.
        write: makes it at the path it is given, and verifies it; what it leaves behind with an exception is removed.
        force: replace what is there.

    Raises:
        ConfigError: it cannot be written there.
    """
    check_place(path, force=force)
    _check_space(path, num_bytes)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        _sync(partial)
        _replace(partial, path)
    finally:
        _remove(partial)


def check_place(path: Path, *, force: bool) -> None:
    """
    Raises:
        ConfigError: there is no folder for it, or something is there already.
    """
    if not path.parent.is_dir():
        raise ConfigError(FIELD, str(path), f"there is no folder {path.parent}; make it first")
    if path.exists() and not force:
        raise ConfigError(FIELD, str(path), "is there already; name another place, or replace it with --force")


def _check_space(path: Path, num_bytes: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if num_bytes > free:
        problem = (
            f"takes {num_bytes / 1e6:,.0f} MB, but {free / 1e6:,.0f} MB are free there; make room, or go elsewhere"
        )
        raise ConfigError(FIELD, str(path), problem)


def _sync(partial: Path) -> None:
    """Its bytes are on the disk before its name is."""
    for file in [partial] if partial.is_file() else sorted(partial.iterdir()):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())


def _replace(partial: Path, path: Path) -> None:
    """A folder cannot take the place of another that is not empty: that one goes first."""
    if path.is_dir() and partial.is_dir():
        aside = path.with_name(f".{path.name}.{os.getpid()}.old")
        path.rename(aside)
        partial.rename(path)
        shutil.rmtree(aside)
    else:
        partial.replace(path)


def _remove(partial: Path) -> None:
    if partial.is_dir():
        shutil.rmtree(partial)
    else:
        partial.unlink(missing_ok=True)
