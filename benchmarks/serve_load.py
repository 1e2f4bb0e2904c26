"""The server under a closed loop of clients, next to the offline engine with as many requests at one time.

    python benchmarks/serve_load.py [--model smollm2-135m] [--threads 2] [--clients 16] [--waves 2] [--rounds 5]

A round measures both by turns: WAVES * CLIENTS prompts of the same ids, INPUT tokens in and exactly OUTPUT out, greedy.
The server is `octavo serve` in processes of its own; each client opens a connection per request, streams the answer of
/v1/completions and then sends its next prompt. The client is plain asyncio, and its share of the processor time is
told, since it takes it from the server. The offline engine gets all prompts at once and runs at most CLIENTS of them
together. Prefix caching is off in both. Whoever is not measured is stopped.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_process import EngineProcess, EngineSpec, cpu_seconds
from pairing import estimate, paired_ratios, rotated
from server_start import served

from octavo.bench.datasets import random_prompts
from octavo.bench.machine import hardware, versions
from octavo.execution.loader import open_checkpoint
from octavo.hub import resolve

CPU_SHARES = ("client_cpu_share", "server_cpu_share")
OFFLINE = Path(__file__).with_name("peers") / "octavo_peer.py"


@dataclass(frozen=True)
class Load:
    """What both sides are given in a round."""

    clients: int
    waves: int
    input_len: int
    output_len: int
    vocab_size: int

    def prompts(self, salt: int) -> list[list[int]]:
        """All prompts of a round."""
        return random_prompts(self.waves * self.clients, self.input_len, self.vocab_size, salt)

    def rate(self, elapsed_s: float) -> float:
        """Generated tokens a second."""
        return self.waves * self.clients * self.output_len / elapsed_s


async def complete(port: int, prompt: Sequence[int], output_len: int) -> tuple[float, int]:
    """One streamed request; seconds to its first event, and tokens that the server counted."""
    asked = {"prompt": prompt, "max_tokens": output_len, "temperature": 0, "ignore_eos": True, "stream": True}
    body = json.dumps(asked | {"stream_options": {"include_usage": True}}).encode()
    begin = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "POST /v1/completions HTTP/1.1\r\nHost: octavo\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    first_s, last = 0.0, b""
    while piece := await reader.read(1 << 16):
        last = last[-4096:] + piece
        if not first_s and b"data: " in last:
            first_s = time.perf_counter() - begin
    writer.close()
    return first_s, tokens_counted(last)


def tokens_counted(tail: bytes) -> int:
    """`completion_tokens` of the last event before [DONE].

    Raises:
        SystemExit: the answer is no complete stream.
    """
    before, marker, after = tail.rpartition(b'"completion_tokens":')
    if not marker or b"[DONE]" not in after:
        raise SystemExit(f"the server answered {(before or tail)[-500:].decode(errors='replace')}")
    return int(after.split(b",")[0].split(b"}")[0])


async def closed_loop(port: int, load: Load, prompts: list[list[int]]) -> dict[str, Any]:
    """Each client sends its next prompt when its last answer is whole."""
    waiting, firsts = list(reversed(prompts)), []

    async def client() -> None:
        while waiting:
            first_s, count = await complete(port, waiting.pop(), load.output_len)
            if count != load.output_len:
                raise SystemExit(f"{count} of {load.output_len} tokens came")
            firsts.append(first_s)

    begin, cpu_begin = time.perf_counter(), time.process_time()
    await asyncio.gather(*(client() for _ in range(load.clients)))
    elapsed_s = time.perf_counter() - begin
    return {
        "output_tokens_per_s": load.rate(elapsed_s),
        "median_first_token_s": sorted(firsts)[len(firsts) // 2],
        "client_cpu_share": (time.process_time() - cpu_begin) / elapsed_s,
    }


def measure_server(port: int, session: int, load: Load, salt: int) -> dict[str, Any]:
    """One closed loop against the woken server."""
    os.killpg(session, signal.SIGCONT)
    cpu_begin, begin = cpu_seconds(session), time.perf_counter()
    figures = asyncio.run(closed_loop(port, load, load.prompts(salt)))
    figures["server_cpu_share"] = (cpu_seconds(session) - cpu_begin) / (time.perf_counter() - begin)
    os.killpg(session, signal.SIGSTOP)
    return figures


def measure_offline(engine: EngineProcess, load: Load, salt: int) -> dict[str, Any]:
    """The same prompts, all given at once."""
    engine.resume()
    run = engine.ask({"prompts": load.prompts(salt), "output_len": load.output_len})
    engine.pause()
    return {"output_tokens_per_s": load.rate(run["elapsed_s"])}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """All rounds."""
    (file, *_) = resolve(options.model).files
    vocab_size = len(open_checkpoint([file]).metadata["tokenizer.ggml.tokens"])
    load = Load(options.clients, options.waves, options.input_len, options.output_len, vocab_size)
    setting = {"model": str(file), "threads": options.threads, "max_seqs": options.clients}
    spec = EngineSpec("octavo", [sys.executable, str(OFFLINE)], setting)
    flags = ["--max-num-seqs", str(options.clients), "--no-enable-prefix-caching", "--speculation", "off"]
    rounds: list[dict[str, Any]] = []
    engine = EngineProcess(spec, options.log, timeout_s=300)
    try:
        measure_offline(engine, load, salt=0)
        with served(str(file), options.threads, *flags) as (port, server):
            measures = {
                "server": lambda salt: measure_server(port, server.pid, load, salt),
                "offline": lambda salt: measure_offline(engine, load, salt),
            }
            measures["server"](0)
            try:
                for number in range(options.rounds):
                    rounds.append({name: measures[name](number + 1) for name in rotated(list(measures), number)})
                    print(f"round {number + 1}: {rounds[-1]}", file=sys.stderr)
            finally:
                os.killpg(server.pid, signal.SIGCONT)
    finally:
        engine.close()
    return {
        "model": options.model,
        "hardware": hardware(),
        "versions": versions(),
        "threads": options.threads,
        "load": vars(load),
        "rounds": rounds,
    }


def as_text(result: dict[str, Any]) -> str:
    """Medians and the ratio."""
    rates = {side: [one[side]["output_tokens_per_s"] for one in result["rounds"]] for side in ("server", "offline")}
    ratio = estimate(paired_ratios(rates["server"], rates["offline"]))
    shares = [estimate([one["server"][name] for one in result["rounds"]]).median for name in CPU_SHARES]
    server, offline = (estimate(rates[side]).median for side in ("server", "offline"))
    return (
        f"{result['model']}, {result['load']['clients']} clients: server {server:.0f} tokens/s, "
        f"offline {offline:.0f}; server / offline {ratio.median:.3f} [{ratio.low:.3f}, "
        f"{ratio.high:.3f}; {100 * ratio.coverage:.0f} %]; cores used: client {shares[0]:.2f}, server {shares[1]:.2f}"
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="a GGUF model by name or path")
    parser.add_argument("--threads", type=int, default=hardware()["usable_cores"])
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--waves", type=int, default=2)
    parser.add_argument("--input-len", type=int, default=128)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--log", type=Path, default=Path(os.devnull), help="what the offline engine says")
    parser.add_argument("--out", type=Path, help="JSON file for everything measured")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    result = run(options)
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(as_text(result))


if __name__ == "__main__":
    main()
