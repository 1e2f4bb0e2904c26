"""`octavo key`: API keys and their digests for a key file."""

import hashlib
import secrets
import sys
from typing import Annotated

import typer

from octavo.cli.flags import with_config_file

PREFIX = "sk-octavo-"
"""So that scanners for leaked secrets can know a key when they see one."""

app = typer.Typer(help="Make API keys and the digests that a key file holds.", no_args_is_help=True)


@app.command()
@with_config_file
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who will use it.")] = "someone",
) -> None:
    """Make a key: it goes to its user, the entry below it into the file of --api-key-file.

    \b
    Examples:
      octavo key new alice
    """
    key = PREFIX + secrets.token_urlsafe(32)
    print(key)
    print(f"  - name: {name}\n    sha256: {_digest(key)}", file=sys.stderr)


@app.command(name="hash")
@with_config_file
def digest() -> None:
    """Print the digest of a key that is read from the standard input, so that it stands in no shell's history.

    \b
    Examples:
      octavo key hash < key.txt
    """
    key = typer.prompt("key", hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.read().strip()
    if not key:
        raise typer.BadParameter("the standard input holds no key")
    print(_digest(key))


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
