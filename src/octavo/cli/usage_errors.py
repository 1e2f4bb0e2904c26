"""Mistakes on the command line itself, in one line: what was wrong, and what might have been meant."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

from octavo.suggestion import did_you_mean

if TYPE_CHECKING:
    from typer._click.exceptions import UsageError
else:
    # typer has it from click, or from a click of its own, by version.
    UsageError = typer.BadParameter.__bases__[0]

__all__ = ["UsageError", "one_line", "what_was_meant"]

AS_ELSEWHERE = {
    "--model": "the model stands without an option: octavo serve MODEL",
    "--model-path": "the model stands without an option: octavo serve MODEL",
    "--gpu-memory-utilization": "KV memory is given in bytes, with --kv-cache-memory-bytes",
    "--mem-fraction-static": "KV memory is given in bytes, with --kv-cache-memory-bytes",
    "--ctx-size": "that is --max-model-len here",
    "--context-length": "that is --max-model-len here",
    "--parallel": "that is --max-num-seqs here",
    "--dtype": "weights run as their file holds them; the KV cache's type is --kv-cache-dtype",
    "--tensor-parallel-size": "one process runs the whole model; its cores are --threads",
    "--tp": "one process runs the whole model; its cores are --threads",
    "--n-gpu-layers": "models run on the CPU; its cores are --threads",
}
"""Options of other engines that look like others of ours, or like none -> what to do here."""


def one_line(message: str, context: Any) -> str:
    """
    Args:
        message: as the parser of the command line words it.
        context: the parser's, of the command that did not understand; None: none was found.
    """
    if context is None:
        return message
    return f"{_meant(_plain(message), context.command)} (`{context.command_path} --help` has all of them)"


def _plain(message: str) -> str:
    """Without the words of the library below that library."""
    message = message.replace("Value error, ", "").removesuffix(".")
    message = re.sub(
        r"Input should be a valid (\w+), unable to parse string as an? \w+", r"must be a number (\1)", message
    )
    return message.replace("Input should be", "must be")


def _meant(message: str, command: Any) -> str:
    """With the option that is most like an unknown one."""
    unknown = re.match(r"No such option:? '?(--?[\w-]+)", message)
    if unknown is None:
        return message
    known = [name for option in command.params for name in (*option.opts, *option.secondary_opts) if name[:2] == "--"]
    hint = what_was_meant(unknown[1], known, unknown[1])
    return f"no such option {unknown[1]}" + (f"; {hint}" if hint else "")


def what_was_meant(name: str, known: Iterable[str], flag: str) -> str:
    """What to do in place of an option that there is not; empty: nobody knows.

    Args:
        name: as the known ones are spelled.
        flag: the same as on the command line.
    """
    if flag in AS_ELSEWHERE:
        return AS_ELSEWHERE[flag]
    return did_you_mean(name, known)
