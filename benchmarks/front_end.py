"""What one client's large request does to another's stream, and what a token costs the front end.

    python benchmarks/front_end.py [--model smollm2-135m] [--rounds 5] [--seconds 2] [--streams 256] [--tokens 64]
        [--processes 1 2] [--json benchmarks/results/front_end.json] [--markdown benchmarks/results/front_end.md]

Delays. One client streams from a server, one token per step, and notes the time between tokens; another asks /health
over one kept connection, so that its answers tell how late that process's event loop is. Meanwhile a program of its own
sends the same request again and again: nothing (alone), a text of 1 MiB to be tokenised, a schema with an enum of 5,000
to be compiled (a new one each time), 3,000,000 empty lists. Tokens of all but the schema's case come from the scripted
executor (`scripted_serve.py`), in steps of 10 ms; a schema needs a model, so its stream has a model's steps, and a case
"alone, model" beside it.

Cost. STREAMS streams of TOKENS tokens at one time, from a plain client in a process of its own, over the scripted
executor without a pause between steps; processor time of the API processes, by the system's account, divided by tokens.

Cases take turns within a round. Told are medians over the rounds of each round's figure, with their intervals.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from pairing import estimate, rotated

from octavo.bench.machine import hardware, versions

HERE = Path(__file__).parent
MIB = 2**20
STEP_S = 0.01
PROBE_PAUSE_S = 0.005
CLIENT = HERE / "front_end_client.py"
Figures = dict[str, float]


@dataclass(frozen=True)
class Case:
    """What is done to a stream."""

    name: str
    offence: str
    """A request of `front_end_client.py`; empty: none."""
    scripted: bool = True


CASES = (
    Case("alone", ""),
    Case("a text of 1 MiB", "text"),
    Case("3,000,000 empty lists", "lists"),
    Case("alone, model", "", scripted=False),
    Case("a new schema of 5,000", "schema", scripted=False),
)


@dataclass
class Server:
    """A running server and its API processes."""

    port: int
    popen: "subprocess.Popen[str]"
    apis: list[psutil.Process] = field(default_factory=list)

    def cpu_s(self) -> float:
        """Processor time of its API processes so far."""
        return sum(sum(process.cpu_times()[:2]) for process in self.apis)


@contextlib.contextmanager
def serving(model: str, processes: int, *flags: str, step_s: float | None) -> Iterator[Server]:
    """A server of the model, or with a step's time of the scripted executor."""
    program = [str(HERE / "scripted_serve.py")] if step_s is not None else ["-m", "octavo", "serve"]
    command = [sys.executable, *program, model, "--port", "0", "--api-server-count", str(processes), *flags]
    command += ["--speculation", "off"]  # a step is a token of each stream
    environment = os.environ | {"OCTAVO_SCRIPTED_STEP_S": str(step_s or 0.0)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as popen:
        try:
            line = popen.stdout.readline() if popen.stdout else ""
            if not line.startswith("ready: "):
                raise SystemExit(f"the server did not start: {line!r}")
            children = psutil.Process(popen.pid).children()
            others = [child for child in children if "api_process" in " ".join(child.cmdline())]
            yield Server(int(line.split()[1].rsplit(":", 1)[1]), popen, [psutil.Process(popen.pid), *others])
        finally:
            popen.terminate()


async def open_post(port: int, path: str, body: dict[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request that has been sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    payload = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: octavo\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}"
    writer.write(head.encode() + b"\r\n\r\n" + payload)
    return reader, writer


async def stream(port: int, gaps_s: list[float], end: asyncio.Event) -> None:
    """Streams, and notes the time between two parts."""
    while not end.is_set():
        body = {"prompt": [300], "max_tokens": 2000, "ignore_eos": True, "temperature": 0, "stream": True}
        reader, writer = await open_post(port, "/v1/completions", body)
        last = None
        while not end.is_set():
            part = await reader.read(MIB)
            now = time.perf_counter()
            if last is not None:
                gaps_s.append(now - last)
            last = now
            if b"[DONE]" in part or not part:
                break
        writer.close()


async def probe(port: int, waits_s: list[float], end: asyncio.Event) -> None:
    """Asks /health over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while not end.is_set():
        begin = time.perf_counter()
        writer.write(b"GET /health HTTP/1.1\r\nHost: octavo\r\n\r\n")
        await reader.readuntil(b"{}")
        waits_s.append(time.perf_counter() - begin)
        await asyncio.sleep(PROBE_PAUSE_S)
    writer.close()


async def measure_delays(server: Server, case: Case, seconds: float) -> Figures:
    """One round of one case."""
    gaps_s: list[float] = []
    waits_s: list[float] = []
    end = asyncio.Event()
    tasks = [
        asyncio.create_task(stream(server.port, gaps_s, end)),
        asyncio.create_task(probe(server.port, waits_s, end)),
    ]
    await asyncio.sleep(0.3)
    offender = None
    if case.offence:
        command = [sys.executable, str(CLIENT), "offend", str(server.port), case.offence, str(seconds)]
        offender = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert offender.stdout is not None
        await offender.stdout.readline()  # it has made its requests
    gaps_s.clear()
    waits_s.clear()
    await asyncio.sleep(seconds)
    kept = (list(gaps_s), list(waits_s))
    if not (gaps_s and waits_s):
        raise SystemExit(f"{case.name}: {len(gaps_s)} tokens and {len(waits_s)} probes in {seconds} s")
    end.set()
    await asyncio.gather(*tasks)
    if offender is not None:
        await offender.wait()
    return {
        f"{name}_{key}": value
        for name, values in zip(("itl", "probe"), kept, strict=True)
        for key, value in spread(values).items()
    }


def spread(values_s: list[float]) -> Figures:
    """Median, 99th percentile and largest, in milliseconds."""
    ordered = sorted(values_s)
    at = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
    return {name: 1e3 * ordered[min(len(ordered) - 1, int(len(ordered) * share))] for name, share in at.items()}


def measure_cost(server: Server, streams: int, tokens: int) -> Figures:
    """One round of many streams."""
    cpu_begin, begin = server.cpu_s(), time.perf_counter()
    command = [sys.executable, str(CLIENT), "streams", str(server.port), str(streams), str(tokens)]
    subprocess.run(command, check=True)
    cpu_s, elapsed_s = server.cpu_s() - cpu_begin, time.perf_counter() - begin
    return {
        "cpu_us_per_token": 1e6 * cpu_s / (streams * tokens),
        "requests_per_s": streams / elapsed_s,
        "tokens_per_s": streams * tokens / elapsed_s,
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    """All rounds."""
    scripted = ("--max-num-seqs", str(max(8, options.streams)), "--max-num-batched-tokens", "8192")
    rounds: list[dict[str, Figures]] = []
    with contextlib.ExitStack() as stack:
        start = stack.enter_context
        paced, real, quick = {}, {}, {}
        for count in options.processes:
            paced[count] = start(serving(options.model, count, *scripted, step_s=STEP_S))
            real[count] = start(serving(options.model, count, "--threads", "1", "--max-num-seqs", "8", step_s=None))
            quick[count] = start(serving(options.model, count, *scripted, step_s=0.0))
            measure_cost(quick[count], options.streams, 4)
        turns = [(case, count) for case in CASES for count in options.processes]
        for number in range(options.rounds):
            figures: dict[str, Figures] = {}
            for case, count in rotated(turns, number):
                server = (paced if case.scripted else real)[count]
                figures[f"{case.name} | {count}"] = asyncio.run(measure_delays(server, case, options.seconds))
            for count in rotated(options.processes, number):
                figures[f"cost | {count}"] = measure_cost(quick[count], options.streams, options.tokens)
            rounds.append(figures)
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    return {
        "model": options.model,
        "hardware": hardware(),
        "versions": versions(),
        "streams": options.streams,
        "tokens": options.tokens,
        "seconds": options.seconds,
        "processes": options.processes,
        "rounds": rounds,
    }


def told(rounds: list[dict[str, Figures]], case: str, figure: str, digits: int = 0) -> str:
    """A median with its interval."""
    found = estimate([one[case][figure] for one in rounds])
    return f"{found.median:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def as_markdown(result: dict[str, Any]) -> str:
    """Both tables."""
    rounds, cpu = result["rounds"], result["hardware"]
    lines = [
        f"{result['model']}, {cpu['cpu']}, {cpu['usable_cores']} cores, {len(rounds)} rounds; medians [intervals].",
        "",
        "| meanwhile | API processes | between tokens: p50 ms | p99 | longest | /health: p50 ms | p99 | longest |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        for count in result["processes"]:
            columns = [
                told(rounds, f"{case.name} | {count}", f"{what}_{which}_ms", 1)
                for what in ("itl", "probe")
                for which in ("p50", "p99", "max")
            ]
            lines.append(f"| {case.name} | {count} | {' | '.join(columns)} |")
    lines += ["", "| API processes | processor time per token, µs | tokens/s | requests/s |", "|---|---|---|---|"]
    for count in result["processes"]:
        columns = [
            told(rounds, f"cost | {count}", name) for name in ("cpu_us_per_token", "tokens_per_s", "requests_per_s")
        ]
        lines.append(f"| {count} | {' | '.join(columns)} |")
    lines += ["", f"{result['streams']} streams of {result['tokens']} tokens at one time."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each case in each round")
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    result = run(options)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.markdown is not None:
        options.markdown.write_text(as_markdown(result))
    print(as_markdown(result))


if __name__ == "__main__":
    main()
