"""`octavo bench`: throughput and latency of the engine in this process, any server under load, a server's start."""

import asyncio
import contextlib
import gc
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.bench.load.settings import PARTS, DatasetSettings, LoadSettings
from octavo.cli.flags import Settings, with_config_file, with_settings
from octavo.cli.terminal import load_model
from octavo.cli.usage_errors import UsageError
from octavo.config import CacheConfig, ExecutionConfig, ModelConfig, SchedulerConfig, SpeculationConfig

if TYPE_CHECKING:
    from octavo.bench.load.datasets import Workload
    from octavo.bench.load.generator import Heard

app = typer.Typer(help="Measure the engine, or any server.", no_args_is_help=True, rich_markup_mode=None)

JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="OUT.json", help="Write all figures there.", show_default=False)
]
InputLen = Annotated[int, typer.Option(help="Prompt tokens.", min=1)]
OutputLen = Annotated[int, typer.Option(help="Tokens generated per prompt (end tokens are ignored).", min=1)]
DataSeed = Annotated[int, typer.Option(help="Of the random prompts.")]
ENGINE = (ModelConfig, CacheConfig, SchedulerConfig, SpeculationConfig, ExecutionConfig)
OF_DATA = frozenset(part.name for part in fields(DatasetSettings))
OWN = frozenset(
    {
        *("seed", "max_num_seqs", "chat_template", "served_model_name"),
        *("input_len", "output_len", "num_prompts", "tokenizer", "think_s"),
    }
)
"""Fields that measurements of the engine set themselves: words are counted by its own tokenizer, and nobody thinks."""


@app.command()
@with_settings(*ENGINE, DatasetSettings, leave_out=OWN)
def throughput(
    settings: Settings,
    input_len: InputLen = 128,
    output_len: Annotated[
        int | None,
        typer.Option(help="Tokens generated per prompt; default: what the data set says, 128 where it says nothing."),
    ] = None,
    num_prompts: Annotated[int, typer.Option(help="Requests in all, or dialogues.", min=1)] = 32,
    max_concurrency: Annotated[int, typer.Option(help="Requests running at one time.", min=1)] = 16,
    seed: DataSeed = 0,
    json_file: JsonFile = None,
) -> None:
    """All requests at once: tokens per second.

    \b
    Examples:
      octavo bench throughput --input-len 128 --output-len 128 --num-prompts 32 --max-concurrency 16
      octavo bench throughput -m ./model.gguf --threads 2 --json out.json
      octavo bench throughput --dataset sharegpt --dataset-path x.json --num-prompts 100
    """
    from octavo.bench.datasets import make_talks
    from octavo.bench.report import complete_figures, require_place
    from octavo.bench.throughput import measure_throughput

    require_place(json_file)
    given = {"input_len": input_len, "output_len": output_len, "num_prompts": num_prompts, "seed": seed}
    engine, data = _engine_and_data(settings, given)
    with load_model(engine | {"max_num_seqs": max_concurrency}) as llm:
        talks = make_talks(data, llm, engine.get("model", ModelConfig.model))
        figures = complete_figures(measure_throughput(llm, talks), llm.info, settings)
    _report(figures, json_file)


@app.command()
@with_settings(*ENGINE, DatasetSettings, leave_out=OWN | {"range_ratio"})  # requests of a batch take as many steps
def latency(
    settings: Settings,
    batch_size: Annotated[int, typer.Option(help="Requests side by side.", min=1)] = 1,
    input_len: InputLen = 512,
    output_len: OutputLen = 128,
    repeats: Annotated[int, typer.Option(help="Measured runs, after one that is not.", min=1)] = 5,
    seed: DataSeed = 0,
    json_file: JsonFile = None,
) -> None:
    """One batch alone: seconds of prefill, seconds per decoding step.

    \b
    Examples:
      octavo bench latency --batch-size 1 --input-len 512 --output-len 128
      octavo bench latency --batch-size 16 --json out.json
    """
    from octavo.bench.datasets import make_talks
    from octavo.bench.latency import measure_latency
    from octavo.bench.report import complete_figures, require_place

    require_place(json_file)
    count = batch_size * (repeats + 1)
    given = {"input_len": input_len, "output_len": output_len, "num_prompts": count, "seed": seed}
    engine, data = _engine_and_data(settings, given)
    with load_model(engine | {"max_num_seqs": batch_size}) as llm:
        talks = make_talks(data, llm, engine.get("model", ModelConfig.model))
        figures = complete_figures(measure_latency(llm, talks, batch_size, output_len), llm.info, settings)
    _report(figures, json_file)


@app.command()
@with_settings(*PARTS)
def serve(
    settings: Settings,
    more_limits: Annotated[
        list[str] | None, typer.Argument(metavar="[LIMIT]...", help="Further limits of the last --goodput.")
    ] = None,
    progress: Annotated[bool, typer.Option(help="A bar on stderr while the run goes on.")] = True,
    json_file: JsonFile = None,
) -> None:
    """Put load on a server of OpenAI's protocol and count what comes of it. Ctrl-C ends the run and shows what was
    counted by then.

    \b
    Examples:
      octavo bench serve --request-rate 4 --input-len 512 --output-len 128 --tokenizer smollm2-135m --ignore-eos
      octavo bench serve --max-concurrency 16 --goodput ttft:300 tpot:60
      octavo bench serve --url https://host/v1 --endpoint chat --dataset sharegpt --dataset-path x.json --request-rate 2
      octavo bench serve --dataset trace --dataset-path azure.csv --num-prompts 500 --time-scale 0.5 --json out.json
    """
    from octavo.bench.load.datasets import make_workload
    from octavo.bench.load.run import put_load, serve_figures
    from octavo.bench.load.table import as_table
    from octavo.bench.load.tokenizer import words_for
    from octavo.bench.report import for_server, require_place, write_json
    from octavo.errors import RequestFailedError

    require_place(json_file)
    load = LoadSettings.from_fields(_with_limits(settings, more_limits or []))
    workload = make_workload(load.data, words_for(load), load.num_warmups)
    shown = _load_progress(workload) if progress else contextlib.nullcontext(_unheard)
    with _frozen(), shown as heard:
        run = asyncio.run(put_load(load, workload, heard))
    figures = serve_figures(run, load)
    print(as_table(figures))
    if json_file is not None:
        write_json(for_server(figures, settings), json_file)
    if run.interrupted:
        raise KeyboardInterrupt
    if not figures["run"]["completed"]:
        raise RequestFailedError(f"no request was completed; {next(iter(figures['run']['errors']), 'no error told')}")


@app.command()
@with_config_file
def startup(
    model: Annotated[str, typer.Option("--model", "-m", metavar="TEXT", help="Alias, file, folder, or hub name.")] = (
        "smollm2-135m"
    ),
    repeats: Annotated[int, typer.Option(metavar="N", help="Measured starts, after one that is not.", min=1)] = 5,
    json_file: JsonFile = None,
) -> None:
    """How long a server takes to start: `octavo serve` until it listens, and until /ready answers.

    \b
    Examples:
      octavo bench startup
      octavo bench startup -m ./model.gguf --repeats 3 --json out.json
    """
    from octavo.bench.report import require_place
    from octavo.bench.startup import measure_startup
    from octavo.cli.terminal import download_progress
    from octavo.hub import resolve

    require_place(json_file)
    with download_progress() as progress:
        resolve(model, progress=progress)
    _report(measure_startup(model, repeats), json_file)


def _engine_and_data(settings: Settings, given: Settings) -> tuple[Settings, DatasetSettings]:
    """What the engine is told, and which prompts it gets.

    Args:
        given: fields of the data set that the command sets itself.
    """
    engine = {name: value for name, value in settings.items() if name not in OF_DATA}
    data = {name: value for name, value in settings.items() if name in OF_DATA}
    return engine, DatasetSettings(**data, **given)


def _with_limits(settings: Settings, more_limits: list[str]) -> Settings:
    """`--goodput ttft:300 tpot:60`: what follows the value as words of their own belongs to it.

    Raises:
        UsageError: there is no --goodput for them.
    """
    if not more_limits:
        return settings
    *others, last = settings.get("goodput", ()) or ("",)
    if not last:
        raise UsageError(f"unexpected {more_limits[0]!r}; limits follow --goodput")
    return settings | {"goodput": (*others, " ".join([last, *more_limits]))}


def _unheard(_: object) -> None:
    """Nobody watches."""


@contextlib.contextmanager
def _frozen() -> Iterator[None]:
    """What exists stays: no collection looks at it while times are taken."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def _load_progress(workload: "Workload") -> Iterator["Heard"]:
    """A bar on stderr. It is drawn between two events, at most four times a second, so it costs the client little. A
    turn that fails takes those after it out of the total: they will not be asked."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from octavo.bench.load.exchange import Exchange, Outcome

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    counts, total = dict.fromkeys(Outcome, 0), workload.num_requests
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as bar:
        task = bar.add_task("", total=total)

        def heard(exchange: Exchange) -> None:
            nonlocal total
            counts[exchange.answer.outcome] += 1
            if exchange.answer.outcome is not Outcome.COMPLETED:
                total -= len(workload.measured[exchange.dialogue].turns) - exchange.turn - 1
            text = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
            bar.update(task, advance=1, total=total, description=text)

        yield heard


def _report(figures: dict[str, Any], json_file: Path | None) -> None:
    from octavo.bench.report import as_lines, write_json

    print(as_lines(figures))
    if json_file is not None:
        write_json(figures, json_file)
