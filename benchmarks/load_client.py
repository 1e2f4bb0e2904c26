"""How many tokens a second the client of `octavo bench serve` can read on one core, so that it is not what it measures.

    python benchmarks/load_client.py [--streams 64] [--tokens 512] [--requests 512] [--pace-s 0.02] [--json OUT.json]

The server is a process of its own that sends prepared bytes: one event, in an HTTP chunk of its own, per token.
`flood`: as fast as they are taken, so many come with one read. `paced`: each stream gets one event every PACE seconds,
so each event is a read of its own, which is the dearest way. Rates are tokens per second of the client's own processor
time, so other work on the machine does not count.
"""

import argparse
import asyncio
import json
import multiprocessing
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from octavo.bench.load.datasets import Workload
from octavo.bench.load.dialogue import Dialogue, Turn
from octavo.bench.load.run import put_load, serve_figures
from octavo.bench.load.settings import LoadSettings
from octavo.bench.machine import hardware, versions

EVENT = {
    "id": "cmpl-0123456789abcdef0123456789abcdef",
    "object": "text_completion",
    "created": 1760000000,
    "model": "scripted",
    "choices": [{"index": 0, "text": " word", "logprobs": None, "finish_reason": None}],
}
USAGE = EVENT | {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 0, "total_tokens": 0}}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """An event in an HTTP chunk of its own."""
    body = b"data: " + data + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(body), body)


def serve(tokens: int, pace_s: float, port: Connection) -> None:
    """Answers every request with so many tokens, for ever."""
    one = chunk(json.dumps(EVENT, separators=(",", ":")).encode())
    USAGE["usage"]["completion_tokens"] = tokens  # type: ignore[index]
    last = chunk(json.dumps(USAGE, separators=(",", ":")).encode()) + chunk(b"[DONE]") + b"0\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(line.split(b":")[1] for line in head.split(b"\r\n") if line.startswith(b"Content-Length"))
            await reader.readexactly(int(length))
            writer.write(HEAD)
            for _ in range(tokens):
                writer.write(one)
                await asyncio.sleep(pace_s)  # in a flood the streams take turns
            writer.write(last)

    async def quiet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(quiet, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def measure(streams: int, requests: int, tokens: int, pace_s: float) -> dict[str, Any]:
    """One closed loop of so many clients."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(tokens, pace_s, theirs), daemon=True)
    server.start()
    try:
        settings = LoadSettings.from_fields(
            {"url": f"http://127.0.0.1:{ours.recv()}", "model": "scripted", "max_concurrency": streams}
        )
        dialogues = [Dialogue((Turn("x", tokens),)) for _ in range(requests)]
        began_s, cpu_s = time.perf_counter(), time.process_time()
        run = asyncio.run(put_load(settings, Workload(dialogues, [])))
        cpu_s, elapsed_s = time.process_time() - cpu_s, time.perf_counter() - began_s
    finally:
        server.terminate()
        server.join()
    figures = serve_figures(run, settings)["run"]
    if figures["completed"] != requests:
        sys.exit(f"only {figures['completed']} of {requests} were completed: {figures['errors']}")
    reads = sum(len(set(x.answer.chunk_s)) for x in run.exchanges)
    return {
        "streams": streams,
        "tokens": requests * tokens,
        "tokens_per_read": requests * tokens / reads,
        "tokens_per_cpu_s": requests * tokens / cpu_s,
        "cpu_us_per_token": 1e6 * cpu_s / (requests * tokens),
        "client_cpu_share": cpu_s / elapsed_s,
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--pace-s", type=float, default=0.02)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {"hardware": hardware(), "versions": versions()}
    for name, pace_s, requests in (("flood", 0.0, options.requests), ("paced", options.pace_s, options.streams)):
        result[name] = measure(options.streams, requests, options.tokens, pace_s)
        shown = ", ".join(f"{key} {value:.4g}" for key, value in result[name].items())
        print(f"{name}: {shown}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
