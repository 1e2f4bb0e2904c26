"""`octavo quantize`: a model in another number format."""

import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.flags import with_config_file
from octavo.cli.terminal import download_progress
from octavo.config import Quantization, choices

if TYPE_CHECKING:
    from octavo.hub import ModelFiles

TYPES = f"One of {', '.join(choices(Quantization))}"
Formats = Enum("Formats", {"gguf": "gguf", "safetensors": "safetensors"})

_PART = re.compile(r"-\d{5}-of-\d{5}$")
_ENDINGS = {"gguf": ".gguf", "safetensors": ""}


@with_config_file
def quantize(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A name as `octavo models` explains them.")],
    to: Annotated[str, typer.Option("--to", metavar="TYPE", help=f"Of the matrices. {TYPES}.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to [default: MODEL-TYPE.gguf here].", show_default=False),
    ] = None,
    format: Annotated[Formats, typer.Option("--format", help="GGUF cannot become safetensors.")] = Formats.gguf,  # noqa: A002
    output_type: Annotated[
        str | None,
        typer.Option(
            "--output-type", metavar="TYPE",
            help="Of the matrix that gives the logits [default: --to, at least q6_k].", show_default=False,
        ),
    ] = None,
    embedding_type: Annotated[
        str | None,
        typer.Option(
            "--embedding-type", metavar="TYPE",
            help="Of the token embedding, if it is not that matrix, too [default: --to].", show_default=False,
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", help="[default: all cores].", min=1, max=256)] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the model that is at --output.")] = False,
) -> None:  # fmt: skip
    """Write a model in another number format.

    A GGUF file is made of every model that Octavo reads, a safetensors folder only of a Hugging Face folder with
    floats, as q8_0, q4_0, f16, bf16 or f32.

    \b
    Examples:
      octavo quantize ./llama-folder --to q4_k
      octavo quantize llama-f16.gguf --to q5_k --output llama-q5_k.gguf
      octavo quantize ./llama-folder --to q8_0 --format safetensors --output llama-q8_0
    """
    from octavo import hub
    from octavo.conversion import quantise_model
    from octavo.conversion.plan import Source
    from octavo.execution.quant.recipe import Recipe, named_type
    from octavo.platform.cpu import describe_machine

    optional = {"output_type": output_type, "embedding_type": embedding_type}
    types = {field: None if kind is None else named_type(field, kind) for field, kind in optional.items()}
    recipe = Recipe(named_type("to", to), output=types["output_type"], embedding=types["embedding_type"])
    with download_progress() as progress:
        files = hub.resolve(model, progress=progress)
    path = output or Path(f"{_plain_name(files)}-{to.lower()}{_ENDINGS[format.value]}")
    with _stoppable(), _writing(path.name) as on_written:
        done = quantise_model(
            Source(files.name, files.folder, files.files),
            recipe,
            path,
            file_format=format.value,
            force=force,
            threads=threads or describe_machine().usable_cores,
            on_written=on_written,
        )
        on_written(done.num_bytes, done.num_bytes)  # header and padding, too: the bar ends at the size that is told
    share = done.num_bytes / done.num_source_bytes
    types_told = ", ".join(f"{count} {name}" for name, count in sorted(done.types.items()))
    print(f"{done.path}: {done.num_bytes / 1e6:,.1f} MB ({share:.0%} of the source); tensors: {types_told}")


def _plain_name(files: "ModelFiles") -> str:
    """Of a file or folder its name, of a repository its last part, without what stands behind it, of a part of a split
    file without its number."""
    name = files.name.rstrip("/").split("/")[-1].split(":")[0].split("@")[0]
    return _PART.sub("", name.removesuffix(".gguf")) or files.folder.resolve().name


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM ends through all that cleans up, as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _writing(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr while a file is written."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bars = Bars(*columns, console=Console(stderr=True))
    tasks: list[TaskID] = []

    def on_written(done: int, total: int) -> None:
        if not tasks:
            tasks.append(bars.add_task(what, total=total))
            bars.start()
        bars.update(tasks[0], completed=done, total=total)

    try:
        yield on_written
    finally:
        if tasks:  # bars that never started would leave an empty line
            bars.stop()
