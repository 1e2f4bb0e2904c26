"""What metrics and ledgers cost a server: the same streams with and without them, in turns.

    python benchmarks/metrics_overhead.py [-m smollm2-135m] [--rounds 15] [--streams 8] [--tokens 64]

Two servers in this process, each with an engine in a process of its own: one as it is, one without `request_ledger`
whose requests are followed by nobody (`ServerMetrics.track`). A plain client streams STREAMS completions at one time
from each, another one first each round. Told are the ratios of throughput and of processor time (servers, engines and
the client), round by round: medians and their intervals. What is counted per step in the engine for /metrics and /load
is in both; benchmarks/step_records.py has its cost.
"""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import httpx
import psutil
from pairing import estimate

from octavo import AsyncLLM
from octavo.config import ServerConfig
from octavo.engine.output import GenerationDelta
from octavo.request.outputs import FinishReason
from octavo.request.params import SamplingParams
from octavo.server.app import build_context
from octavo.server.http_server import HttpServer
from octavo.server.listener import bind
from octavo.server.metrics import RequestTracker

PROMPT = "Once upon a time there was a town by the sea. "


class NoTracker:
    """Follows a request, and notes nothing."""

    def see(self, prompt: int, delta: GenerationDelta) -> None: ...

    def close(self, reason: FinishReason) -> None: ...

    def reject(self, reason: str) -> None: ...


def no_tracker(params: SamplingParams, num_choices: int, arrival: float) -> RequestTracker:
    """In place of `ServerMetrics.track`."""
    return cast(RequestTracker, NoTracker())


@asynccontextmanager
async def served(model: str, streams: int, *, noted: bool) -> AsyncIterator[str]:
    """The URL of a server."""
    engine = await AsyncLLM.start(
        model,
        threads=1,
        max_model_len=512,
        max_num_seqs=streams,
        num_kv_blocks=64 * streams,
        request_ledger=noted,
        speculation="off",
    )
    config = ServerConfig(port=0)
    context = build_context(engine, config, clock=time.monotonic)
    if not noted:
        context.metrics.track = no_tracker  # type: ignore[method-assign]
    server = HttpServer(context)
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.run(bind(config), url.set_result))
    try:
        yield await url
    finally:
        server.stop()
        await running
        await engine.shutdown()


async def stream(client: httpx.AsyncClient, url: str, tokens: int, place: int) -> int:
    """Events of one answer."""
    body = {"prompt": f"{place} {PROMPT}", "max_tokens": tokens, "stream": True, "temperature": 0, "ignore_eos": True}
    async with client.stream("POST", f"{url}/v1/completions", json=body) as answer:
        answer.raise_for_status()
        return sum([1 async for line in answer.aiter_lines() if line.startswith("data: {")])


def processor_s() -> float:
    """Of this process and those it has started."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


async def round_of(client: httpx.AsyncClient, url: str, streams: int, tokens: int) -> tuple[float, float]:
    """Wall and processor time of all streams together."""
    begin, spent = time.perf_counter(), processor_s()
    events = await asyncio.gather(*[stream(client, url, tokens, place) for place in range(streams)])
    if min(events) < tokens // 2:
        raise SystemExit(f"an answer of {tokens} tokens came in {min(events)} events")
    return time.perf_counter() - begin, processor_s() - spent


async def compare(model: str, rounds: int, streams: int, tokens: int) -> None:
    """Prints the ratios."""
    async with (
        served(model, streams, noted=True) as noted,
        served(model, streams, noted=False) as plain,
        httpx.AsyncClient(timeout=120) as client,
    ):
        walls, processors = [], []
        for turn in range(-1, rounds):
            order = (noted, plain) if turn % 2 else (plain, noted)
            seen = {url: await round_of(client, url, streams, tokens) for url in order}
            if turn >= 0:  # the first one fills caches
                walls.append(seen[plain][0] / seen[noted][0])
                processors.append(seen[noted][1] / seen[plain][1])
    wall, processor = estimate(walls), estimate(processors)
    print(f"{model}, {streams} streams of {tokens} tokens, {rounds} pairs; with metrics and ledgers next to without:")
    print(f"throughput      {wall.median:.4f} ({wall.low:.4f} to {wall.high:.4f}, {wall.coverage:.0%})")
    print(f"processor time  {processor.median:.4f} ({processor.low:.4f} to {processor.high:.4f})")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="smollm2-135m")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    asyncio.run(compare(options.model, options.rounds, options.streams, options.tokens))


if __name__ == "__main__":
    main()
