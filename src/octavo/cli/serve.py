"""`octavo serve`: the HTTP server."""

import contextlib
import logging
import re
import signal
import socket
from collections.abc import Iterator
from dataclasses import fields
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

import octavo.log
from octavo.cli.flags import Settings, with_settings
from octavo.cli.terminal import fetch
from octavo.config import (
    CacheConfig,
    EngineConfig,
    ExecutionConfig,
    KVEventsConfig,
    LogConfig,
    ModelConfig,
    SchedulerConfig,
    ServerConfig,
    SpeculationConfig,
    StepMetricsConfig,
)

if TYPE_CHECKING:
    from octavo.engine.async_llm import AsyncLLM
    from octavo.engine.core_process import CoreProcess
    from octavo.engine.output import EngineInfo
    from octavo.hub.files import ModelFiles
    from octavo.server.api_processes import ApiProcesses
    from octavo.server.api_spawn import ApiSpawn
    from octavo.server.context import ServerContext

log = logging.getLogger(__name__)

SERVER_FIELDS = frozenset(config_field.name for config_field in fields(ServerConfig))
LOG_FIELDS = frozenset(config_field.name for config_field in fields(LogConfig))


@with_settings(
    ServerConfig,
    ModelConfig,
    CacheConfig,
    SchedulerConfig,
    SpeculationConfig,
    ExecutionConfig,
    KVEventsConfig,
    StepMetricsConfig,
    LogConfig,
    leave_out=frozenset({"model"}),
)
def serve(
    settings: Settings,
    model: Annotated[
        str | None,
        typer.Argument(help="Alias, GGUF file, folder or hub name [default: smollm2-135m].", show_default=False),
    ] = None,
) -> None:
    """Serve a model over HTTP with the APIs of OpenAI (completions, chat, responses, embeddings) and Anthropic
    (messages).

    \b
    Examples:
      octavo serve
      octavo serve qwen2.5-coder-0.5b --port 9000 --max-num-seqs 16
      octavo serve ./model.gguf --api-key secret --kv-cache-memory-bytes 2GiB
      octavo serve --config server.yaml
    """
    from octavo.engine.core_process import CoreProcess
    from octavo.engine.signals import held_back_signals
    from octavo.server.api_keys import load_keys
    from octavo.server.api_spawn import ApiSpawn
    from octavo.server.listener import bind
    from octavo.server.tls import tls_context
    from octavo.server.tracing.start import check_tracing

    _set_up_log(LogConfig(**{name: value for name, value in settings.items() if name in LOG_FIELDS}))
    named = {} if model is None else {"model": model}
    server = ServerConfig(**{name: value for name, value in settings.items() if name in SERVER_FIELDS})
    engine = EngineConfig.from_fields(
        named | {name: value for name, value in settings.items() if name not in SERVER_FIELDS | LOG_FIELDS}
    )
    load_keys(server)  # so that a mistake there costs no time
    tls_context(server)
    check_tracing(server)
    _check_parsers(server)
    _check_promises(server)
    with bind(server) as listener, _ended_by_sigterm(), contextlib.ExitStack() as stack:
        with held_back_signals():
            process = stack.enter_context(CoreProcess())
            spawn = stack.enter_context(ApiSpawn(server.api_server_count - 1, listener))
        files = fetch(engine)
        process.load(engine, files, server.api_server_count)
        others = _instructed(spawn, server, engine, files, process)
        ended_well = _run(server, engine, files, process, others, listener)
    if not ended_well:
        raise typer.Exit(1)


def _set_up_log(config: LogConfig) -> None:
    """Anew, with what this command knows beyond what all commands do."""
    level = octavo.log.current().level if config.log_level is None else config.log_level
    octavo.log.set_up(octavo.log.LogSettings(level=level, format=config.log_format), role="server")


def _check_parsers(server: ServerConfig) -> None:
    """
    Raises:
        ConfigError: a flag names a parser that there is not. Known before the model is loaded.
    """
    if server.tool_call_parser is not None or server.reasoning_parser is not None:
        from octavo.server.conversation.dialect import Dialects

        Dialects(server)


def _check_promises(server: ServerConfig) -> None:
    """
    Raises:
        ConfigError: a promise cannot be read. Known before the model is loaded.
    """
    if server.goodput:
        from octavo.server.app import read_promises

        read_promises(server)


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, so that nothing is left behind; once there is an event loop it does as the
    loop says. Further ones do nothing."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _instructed(
    spawn: "ApiSpawn", server: ServerConfig, engine: EngineConfig, files: "ModelFiles", process: "CoreProcess"
) -> "ApiProcesses | None":
    """The further API processes, told what to serve; None: there are none."""
    if not spawn.processes:
        return None
    from octavo.server.api_processes import ApiProcesses

    others = ApiProcesses(spawn)
    others.load(server, lambda client: process.join_order(engine, files, client))
    return others


def _run(
    config: ServerConfig,
    engine: EngineConfig,
    files: "ModelFiles",
    process: "CoreProcess",
    others: "ApiProcesses | None",
    listener: socket.socket,
) -> bool:
    """Serves until told to stop. The imports here take as long as the core process takes to load a small model."""
    import asyncio

    return asyncio.run(_serve(config, engine, files, process, others, listener))


async def _serve(
    config: ServerConfig,
    engine_config: EngineConfig,
    files: "ModelFiles",
    process: "CoreProcess",
    others: "ApiProcesses | None",
    listener: socket.socket,
) -> bool:
    import asyncio

    from octavo.engine.async_llm import AsyncLLM
    from octavo.server.http_server import HttpServer, stopped_by_signals

    starting = asyncio.ensure_future(AsyncLLM.attach(process, engine_config, files))
    with stopped_by_signals(starting.cancel):
        try:
            engine = await starting
        except asyncio.CancelledError:
            return True  # told to stop while loading
    try:
        context = _context(engine, config, process, others)
        server = HttpServer(context)

        def stop() -> None:
            server.stop()
            if others is not None:
                others.stop()

        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(stopped_by_signals(stop))
            if others is not None:
                await stack.enter_async_context(
                    others.joined(engine, process, context.state.board, context.metrics.figures, stop)
                )
            ended_well = await server.run(listener, lambda url: _announce(url, config, engine.info))
        return ended_well and (others is None or others.lost is None)
    finally:
        await engine.shutdown()


def _context(
    engine: "AsyncLLM", config: ServerConfig, process: "CoreProcess", others: "ApiProcesses | None"
) -> "ServerContext":
    """What the endpoints share, and with several processes the memory that these share."""
    from octavo.server.app import build_context

    if others is None:
        return build_context(engine, config)
    from octavo.server.api_keys import load_keys
    from octavo.server.api_order import BUSY_FILE, USAGE_FILE
    from octavo.server.busy_board import BusyBoard
    from octavo.server.usage_ledger import UsageLedger

    count = config.api_server_count
    return build_context(
        engine,
        config,
        usage=UsageLedger(load_keys(config).limited, process.folder / USAGE_FILE, num_processes=count),
        board=BusyBoard(process.folder / BUSY_FILE, num_processes=count),
        siblings=others,
    )


def _announce(url: str, config: ServerConfig, info: "EngineInfo") -> None:
    print(f"ready: {url}  {info.describe()}", flush=True)
    here = re.match(r"https?://(127\.|\[::1\])", url) is not None
    if not (here or config.api_key or config.api_key_file):
        log.warning("reachable from other machines without a key; --api-key asks them for one")
