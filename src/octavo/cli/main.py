"""The `octavo` program: its sub-commands, and how it ends."""

import logging
import sys
from enum import Enum
from typing import Annotated

import typer

import octavo
import octavo.log
from octavo.cli import bench, chat, complete, doctor, explain, key, ledger, models, pull, quantize, run_batch, serve
from octavo.cli.terminal import prepare_streams
from octavo.cli.usage_errors import UsageError, one_line
from octavo.errors import DownloadError, EngineDeadError, OctavoError, RequestFailedError

log = logging.getLogger(__name__)

EPILOG = """\b
Examples:
  octavo chat "What is the capital of France?"
  octavo serve smollm2-135m --port 8000
  octavo doctor
"""

app = typer.Typer(
    name="octavo",
    help="Octavo serves language models: a paged engine, an OpenAI-compatible server, a command line.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
LogLevel = Enum("LogLevel", {level: level for level in octavo.log.LEVELS})  # type: ignore[misc]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"octavo {octavo.__version__}")
        raise typer.Exit


@app.callback()
def options(
    log_level: Annotated[
        LogLevel | None,
        typer.Option(help=f"What to tell on stderr; also ${octavo.log.ENVIRONMENT_VARIABLE}.", show_default=False),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """What holds for every command."""
    level = octavo.log.default_level() if log_level is None else str(log_level.value)
    octavo.log.set_up(octavo.log.LogSettings(level=level))


app.command()(chat.chat)
app.command()(complete.complete)
app.command()(serve.serve)
app.command("run-batch")(run_batch.run_batch)
app.command()(models.models)
app.command()(pull.pull)
app.command()(quantize.quantize)
app.command()(doctor.doctor)
app.command()(ledger.ledger)
app.command()(explain.explain)
app.add_typer(bench.app, name="bench")
app.add_typer(key.app, name="key")


def main() -> None:
    """Runs the command line. Ends with 0, with 2 for what the user can mend (a flag, a name, a file, a port, memory),
    with 1 for what failed on the way; errors are one line on stderr."""
    prepare_streams()
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except UsageError as error:
        _fail_usage(error)
    except typer.Abort:
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has left; there is nobody to tell
        sys.exit(1)
    except OctavoError as error:
        log.debug("failed", exc_info=error)
        _fail(str(error), code=1 if isinstance(error, RequestFailedError | EngineDeadError | DownloadError) else 2)
    except ImportError as error:  # a part of the installation is missing, or stale
        log.debug("failed", exc_info=error)
        _fail(str(error), code=2)
    except OSError as error:
        log.debug("failed", exc_info=error)
        _fail(f"{error.filename or 'output'}: {error.strerror or error}", code=1)
    except Exception as error:
        log.debug("failed", exc_info=error)
        problem = f"internal error: {type(error).__name__}: {error}"
        _fail(f"{problem} (octavo --log-level debug ... shows where; `octavo doctor` makes a report)", code=1)


def _fail_usage(error: UsageError) -> None:
    message = error.format_message()
    if "\n" in message:  # a group of commands without a command: its help
        print(message, file=sys.stderr)
        sys.exit(2)
    _fail(one_line(message, error.ctx), code=2)


def _fail(problem: str, code: int) -> None:
    line = " ".join(problem.split())
    print(f"octavo: {line}", file=sys.stderr)
    sys.exit(code)
