"""`octavo run-batch`: OpenAI batch files without a server."""

import contextlib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.flags import Settings, with_settings
from octavo.cli.terminal import fetch
from octavo.config import (
    CacheConfig,
    EngineConfig,
    ExecutionConfig,
    ModelConfig,
    SchedulerConfig,
    ServerConfig,
    SpeculationConfig,
)

if TYPE_CHECKING:
    from octavo.hub.files import ModelFiles
    from octavo.server.batch.lines import BatchPlan
    from octavo.server.batch.results import Answers, ResultFile
    from octavo.server.batch.run import BatchCount, Report

SERVER_FIELDS = frozenset({"max_body_bytes", "tool_call_parser", "reasoning_parser"})
"""What of the server's settings has a meaning without sockets and keys."""
MORE_THAN_RUN = 8
"""Requests beyond those that the engine runs at one time: the next ones are there when a place is free."""


@with_settings(
    ServerConfig,
    ModelConfig,
    CacheConfig,
    SchedulerConfig,
    SpeculationConfig,
    ExecutionConfig,
    leave_out=frozenset(field.name for field in fields(ServerConfig)) - SERVER_FIELDS,
)
def run_batch(
    settings: Settings,
    input: Annotated[  # noqa: A002 - the name of the flag, in a file of settings, too
        Path,
        typer.Option("--input", "-i", metavar="IN.jsonl", help="A request a line: custom_id, method, url, body."),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="OUT.jsonl", help="An answer a line; one that is there is gone on with."
        ),
    ],
    max_concurrency: Annotated[
        int, typer.Option(metavar="N", min=0, help="Requests in progress at one time; 0: as keeps the engine full.")
    ] = 0,
) -> None:
    """Answer the requests of an OpenAI batch file; no server needed.

    \b
    Chat completions, completions, embeddings and responses. Ends with 0 if all were
    answered, with 1 if some got an error for an answer. Stopped at any moment, the
    same command goes on where it was.

    \b
    Examples:
      octavo run-batch -i requests.jsonl -o answers.jsonl
      octavo run-batch -i requests.jsonl -o answers.jsonl -m qwen2.5-coder-0.5b --max-num-seqs 32
    """
    from octavo.server.batch.lines import plan_batch
    from octavo.server.batch.results import ResultFile, answers_in

    kept = {"response_store_size": 0}  # nobody is left to ask for a response when the batch is done
    server = ServerConfig(**kept | {name: value for name, value in settings.items() if name in SERVER_FIELDS})
    engine = EngineConfig.from_fields({name: value for name, value in settings.items() if name not in SERVER_FIELDS})
    before = answers_in(output)
    plan = plan_batch(input, before.ids)
    with ResultFile(output) as results:
        count = _run(plan, results, server, engine, max_concurrency) if plan.num_to_do else None
    typer.echo(_summary(before, count), err=True)
    if before.num_failed or (count is not None and count.failed):
        raise typer.Exit(1)


def _summary(before: "Answers", count: "BatchCount | None") -> str:
    failed = f", {before.num_failed} of them errors; to ask these again delete their lines" if before.num_failed else ""
    if count is None:
        return f"nothing to do: {len(before.ids)} answers are there{failed}"
    there = f", {len(before.ids)} before{failed}" if before.ids else ""
    return f"{count.answered - count.failed} answered, {count.failed} failed{there}"


def _run(
    plan: "BatchPlan",
    results: "ResultFile",
    server: ServerConfig,
    engine: EngineConfig,
    max_concurrency: int,
) -> "BatchCount":
    import asyncio

    files = fetch(engine)
    return asyncio.run(_answer_all(plan, results, server, engine, files, max_concurrency))


async def _answer_all(
    plan: "BatchPlan",
    results: "ResultFile",
    server: ServerConfig,
    config: EngineConfig,
    files: "ModelFiles",
    max_concurrency: int,
) -> "BatchCount":
    from octavo.engine.async_llm import AsyncLLM
    from octavo.engine.core_process import CoreProcess
    from octavo.server.app import build_app, build_context
    from octavo.server.batch.run import run_batch as run_lines

    process = CoreProcess()
    process.load(config, files)
    engine = await AsyncLLM.attach(process, config, files)
    try:
        app = build_app(build_context(engine, server))
        at_once = max_concurrency or engine.info.max_num_seqs + MORE_THAN_RUN
        with batch_progress(plan) as report:
            return await run_lines(app, plan.to_do(), results, max_concurrency=at_once, report=report)
    finally:
        await engine.shutdown()


@contextlib.contextmanager
def batch_progress(plan: "BatchPlan") -> Iterator["Report"]:
    """A progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task("requests", total=plan.num_lines, completed=len(plan.done))
        failed = 0

        def report(went_well: bool) -> None:
            nonlocal failed
            failed += not went_well
            text = f"requests ({failed} failed)" if failed else "requests"
            bars.update(task, advance=1, description=text)

        yield report
