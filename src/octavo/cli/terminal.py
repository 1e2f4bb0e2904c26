"""What commands share at the terminal: loading a model with progress, printing streamed text."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.config import EngineConfig, SpeculationConfig
    from octavo.engine.llm import LLM
    from octavo.hub import ModelFiles, Progress

NO_NAMES = ("auto", "off")
"""Values of `speculation` that name nobody: they need no check, which would take imports before every start."""


@contextmanager
def download_progress() -> Iterator["Progress"]:
    """A progress bar on stderr while something is fetched; nothing where nothing is."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    bars = Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
    )
    tasks: dict[str, TaskID] = {}

    class TerminalProgress:
        """Shows what the hub reports."""

        def notice(self, text: str) -> None:
            console.print(text, highlight=False, soft_wrap=True)

        def update(self, what: str, done_bytes: int, total_bytes: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total_bytes)
                bars.start()
            bars.update(tasks[what], completed=done_bytes, total=total_bytes)

    try:
        yield TerminalProgress()
    finally:
        if tasks:  # bars that never started would leave an empty line
            bars.stop()


def fetch(config: "EngineConfig") -> "ModelFiles":
    """Fetches what an engine runs if need be, with progress: the model, and one that guesses for it.

    Returns:
        The files of the model.

    Raises:
        OctavoError: one of them cannot be had.
    """
    from octavo.hub import resolve

    if config.speculation.speculation not in NO_NAMES:
        from octavo.engine.speculation import require_known

        require_known(config.speculation)
    with download_progress() as progress:
        files = resolve(config.model.model, progress=progress)
        if config.speculation.model_name:
            _fetch_second(config.speculation, progress)
    return files


def _fetch_second(config: "SpeculationConfig", progress: "Progress") -> None:
    from octavo.errors import ConfigError, ModelNotFoundError
    from octavo.hub import resolve

    try:
        resolve(config.model_name, progress=progress)
    except ModelNotFoundError as error:
        raise ConfigError("speculation", config.speculation, str(error)) from None


def load_model(settings: dict[str, Any]) -> "LLM":
    """Fetches the model if need be, with progress, and loads it in this process.

    Raises:
        OctavoError: it cannot be had or does not fit.
    """
    from octavo.config import EngineConfig
    from octavo.engine.llm import LLM

    config = EngineConfig.from_fields(settings)  # a wrong flag is told before anything is fetched
    _refuse_profile_folder(config.execution.profile)
    fetch(config)
    others = {name: value for name, value in settings.items() if name != "model"}
    return LLM(config.model.model, **others)


def _refuse_profile_folder(place: str | None) -> None:
    """
    Raises:
        ConfigError: profiles would have to be asked for, which nobody can do of a command that only runs once.
    """
    from octavo.engine.traces import FILE_ENDINGS
    from octavo.errors import ConfigError

    if place and not place.endswith(FILE_ENDINGS):
        problem = (
            "folders are for `octavo serve`, which is asked for profiles; name a file that ends in .json, .json.gz"
        )
        raise ConfigError("profile", place, problem)


def prepare_streams() -> None:
    """Makes the standard streams fit for any text: one that the caller has closed leads nowhere, and what the
    terminal's encoding does not have is shown as `?` instead of ending the command."""
    nowhere = Path(os.devnull)
    sys.stdin = sys.stdin or nowhere.open()
    sys.stdout = sys.stdout or nowhere.open("w")
    sys.stderr = sys.stderr or nowhere.open("w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def typed_text(argument: str) -> str:
    """A text from the command line, read as UTF-8 whatever the locale says.

    Raises:
        InvalidRequestError: it is not UTF-8.
    """
    return _utf8(os.fsencode(argument))


def piped_text() -> str:
    """All of standard input, read as UTF-8.

    Raises:
        InvalidRequestError: it is not UTF-8.
    """
    return _utf8(sys.stdin.buffer.read())


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        from octavo.errors import InvalidRequestError

        problem = f"byte {error.start} is not UTF-8 ({error.reason}); convert the text first"
        raise InvalidRequestError("prompt", data[error.start : error.end], problem) from None


def show(text: str) -> None:
    """Prints a piece of text at once."""
    sys.stdout.write(text)
    sys.stdout.flush()
