"""`octavo pull`: fetch models ahead of time."""

from typing import Annotated

import typer

from octavo.cli.flags import with_config_file
from octavo.cli.terminal import download_progress


@with_config_file
def pull(
    names: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Names as `octavo models` explains them.")],
) -> None:
    """Fetch models into the cache, or verify those that are there.

    \b
    Examples:
      octavo pull smollm2-135m
      octavo pull gemma3-270m qwen2.5-coder-0.5b
    """
    from octavo import hub

    for name in names:
        with download_progress() as progress:
            files = hub.pull(name, progress)
        print(f"{name}: {files.files[0]}")
