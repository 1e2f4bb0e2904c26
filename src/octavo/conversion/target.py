"""Where a result goes: whole and verified, or not at all."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from octavo.errors import ConfigError

FIELD = "output"


def write_whole(path: Path, num_bytes: int, write: Callable[[Path], None], *, force: bool, is_folder: bool) -> None:
    """Lets a file or folder appear at `path` by one renaming, when it is done.

    Args:
        num_bytes: how long it will be, so that a disk that is too full is told before anything is written.
        write: makes it at the path it is given, and verifies it; what it leaves behind with an exception is removed.
        force, is_folder: as of `check_place`.

    Raises:
        ConfigError: it cannot be written there.
    """
    check_place(path, force=force, is_folder=is_folder)
    _check_space(path, num_bytes)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        _sync(partial)
        _replace(partial, path)
    except OSError as error:
        raise ConfigError(FIELD, str(path), f"cannot be written ({error}); make room, or name another place") from error
    finally:
        _remove(partial)


def check_place(path: Path, *, force: bool, is_folder: bool) -> None:
    """
    Args:
        force: replace what is there, if that is a model, never other things.
        is_folder: the result is a folder.

    Raises:
        ConfigError: there is no folder for it, or something is there already that it does not replace.
    """
    if not path.parent.is_dir():
        raise ConfigError(FIELD, str(path), f"there is no folder {path.parent}; make it first")
    if not path.exists():
        return
    if path.is_dir() is not is_folder:
        problem = "is a file; name a folder, or write" if is_folder else "is a folder; name a file in it, or write"
        raise ConfigError(FIELD, str(path), f"{problem} --format {'gguf' if is_folder else 'safetensors'}")
    if not force:
        raise ConfigError(FIELD, str(path), "is there already; name another place, or replace it with --force")
    if is_folder and not _is_model(path):
        raise ConfigError(
            FIELD, str(path), "holds other things than a model, which --force would remove; empty it first"
        )
    if not is_folder and not _is_gguf(path):
        problem = "is no GGUF file, and --force replaces models only; remove it first, or name another place"
        raise ConfigError(FIELD, str(path), problem)


def _is_gguf(path: Path) -> bool:
    """Whether it begins as one. What is no regular file is none, and is not opened: a pipe would wait for a writer.

    Raises:
        ConfigError: it cannot be read.
    """
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError as error:
        raise ConfigError(FIELD, str(path), f"cannot be read ({error}); name another place") from error


def _is_model(folder: Path) -> bool:
    """Whether nothing is lost by replacing it: it is empty, or has a config.json and no folders."""
    inside = list(folder.iterdir())
    return not inside or ((folder / "config.json").is_file() and not any(entry.is_dir() for entry in inside))


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
