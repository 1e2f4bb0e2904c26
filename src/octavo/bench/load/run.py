"""One measurement: warm-up, load, figures."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.bench.load.client import Client, Connect
from octavo.bench.load.datasets import Workload
from octavo.bench.load.dialogue import Dialogue, with_hang_ups
from octavo.bench.load.exchange import Exchange
from octavo.bench.load.figures import attained_rate, run_figures
from octavo.bench.load.generator import Generator, Heard
from octavo.bench.load.goodput import parse_slo_class
from octavo.bench.load.schedule import schedule
from octavo.bench.load.settings import LoadSettings, MeasureSettings
from octavo.bench.load.target import Target
from octavo.bench.load.window import Window, steady_state, trimmed, whole_run
from octavo.errors import ConfigError

WARM_UP_CLIENTS = 16


@dataclass(frozen=True)
class Run:
    """What was seen."""

    exchanges: list[Exchange]
    model: str
    cpu_share: float
    """Processor time of this process over the run's time: near 1 the client is what was measured."""
    interrupted: bool = False
    """Whether it was cancelled before its end."""


async def put_load(
    settings: LoadSettings,
    workload: Workload,
    heard: Heard = lambda _: None,
    connect: Connect | None = None,
    cpu_s: Callable[[], float] = time.process_time,
) -> Run:
    """Warms the server up, then sends the workload as the settings say. Equal settings send equal requests at equal
    intended times. Cancelled after the warm-up it gives up what is under way, closes all connections and returns what
    was seen.

    Args:
        connect: None: by TCP to the settings' URL.

    Raises:
        RequestFailedError: the server cannot be asked for its models.
        ConfigError: the prompts do not suit the endpoint, or a setting has no effect.
    """
    _check_prompts(settings, workload.measured)
    times = schedule(settings.arrivals, workload.measured, settings.data.seed)
    dialogues = with_hang_ups(workload.measured, settings.measure.hang_up_share, settings.data.seed)
    client = Client(settings.target, connect)
    try:
        target = Target(settings.target, settings.target.model or (await client.models())[0])
        await Generator(client, target).closed_loop(workload.warm_up, WARM_UP_CLIENTS)
        loop = asyncio.get_running_loop()
        began_s, began_cpu_s = loop.time(), cpu_s()
        generator = Generator(client, target, heard)
        interrupted = False
        try:
            if times is None:
                await generator.closed_loop(dialogues, settings.arrivals.max_concurrency or len(dialogues))
            else:
                await generator.open_loop(dialogues, times, settings.arrivals.max_concurrency)
        except asyncio.CancelledError:
            interrupted = True
        elapsed_s = loop.time() - began_s
        share = (cpu_s() - began_cpu_s) / elapsed_s if elapsed_s else 0.0
        return Run(generator.exchanges, target.model, share, interrupted)
    finally:
        client.close()


def serve_figures(run: Run, settings: LoadSettings) -> dict[str, Any]:
    """The run's figures: of the window that was chosen, and of the whole run and the steady state beside it."""
    slos = [parse_slo_class(text) for text in settings.measure.goodput]
    whole, steady = whole_run(run.exchanges), steady_state(run.exchanges)
    windows: dict[str, Window | None] = {"run": whole, "steady": steady}
    chosen = _chosen(windows, settings.measure)
    rate = settings.arrivals.request_rate
    return {
        "model": run.model,
        "interrupted": run.interrupted,
        "dialogues": sum(exchange.turn == 0 for exchange in run.exchanges),
        "request_rate": None if rate is None else str(rate) if rate == float("inf") else rate,
        "attained_request_rate": attained_rate(run.exchanges),
        "client_cpu_share": run.cpu_share,
        "measured": None if chosen is None else run_figures(run.exchanges, chosen, slos),
        **{name: window and run_figures(run.exchanges, window, slos) for name, window in windows.items()},
    }


def _chosen(windows: dict[str, Window | None], settings: MeasureSettings) -> Window | None:
    window = windows[settings.window]
    return None if window is None else trimmed(window, settings.warm_up_s, settings.cool_down_s)


def _check_prompts(settings: LoadSettings, dialogues: Sequence[Dialogue]) -> None:
    """Before anything is sent."""
    unfit = dict if settings.target.endpoint == "completions" else int
    for turn in (turn for dialogue in dialogues for turn in dialogue.turns):
        if not isinstance(turn.prompt, str) and isinstance(turn.prompt[0], unfit):
            needs = "messages need chat" if unfit is dict else "token ids need completions"
            raise ConfigError("endpoint", settings.target.endpoint, needs)
