"""One request of 2,050 prompt and 300 output tokens, from HTTP to its last byte: every figure of docs/tour.md.

    python benchmarks/tour.py [-m smollm2-135m] [--threads 1]

Starts `octavo serve`, sends one streamed completion, and prints what the client saw and what the request's ledger says.
If this machine has never been measured, that is done first (three seconds), so that there are bounds.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

import msgspec

from octavo.bench.this_machine import this_machine
from octavo.cli.explanation import explain
from octavo.hub.cache import default_root
from octavo.request.params import SamplingParams
from octavo.request.request import GenerateRequest

PROMPT_TOKENS, OUTPUT_TOKENS, STEP_TOKENS = 2050, 300, 512
NAME = "tour"
TEXT = "Paged memory lets many requests share one machine, and a ledger tells each of them what that was worth. "


@contextmanager
def serving(model: str, threads: int) -> Iterator[str]:
    """`host:port` of a server that has nothing else to do."""
    command = [sys.executable, "-m", "octavo", "serve", model, "--port", "0", "--threads", str(threads)]
    command += ["--max-num-batched-tokens", str(STEP_TOKENS), "--max-model-len", "2560", "--speculation", "off"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://(\S+)", line)
        if found is None:
            raise RuntimeError(f"the server did not start; run `{' '.join(command[1:])}` to see why")
        print(f"{line.strip()}\n")
        yield found[1]
    finally:
        process.terminate()
        process.wait(30)


def asked(address: str, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON that the server answers."""
    connection = HTTPConnection(address, timeout=60)
    connection.request(method, path, None if body is None else json.dumps(body))
    answer: dict[str, Any] = json.load(connection.getresponse())
    connection.close()
    return answer


def prompt_of(address: str) -> str:
    """A text of exactly so many tokens."""
    many = asked(address, "POST", "/tokenize", {"prompt": TEXT * 200})["tokens"]
    text = str(asked(address, "POST", "/detokenize", {"tokens": many[: PROMPT_TOKENS - 50]})["prompt"])
    count = len(asked(address, "POST", "/tokenize", {"prompt": text})["tokens"])
    text += " the" * (PROMPT_TOKENS - count)
    count = len(asked(address, "POST", "/tokenize", {"prompt": text})["tokens"])
    if count != PROMPT_TOKENS:
        raise RuntimeError(f"the text has {count} tokens; ' the' is not one token of this model")
    return text


class Seen:
    """What the client saw."""

    def __init__(self, address: str, prompt: str) -> None:
        body = {"prompt": prompt, "max_tokens": OUTPUT_TOKENS, "temperature": 0, "ignore_eos": True, "stream": True}
        sent = json.dumps(body)
        self.sent_bytes = len(sent)
        connection = HTTPConnection(address, timeout=600)
        begin = time.monotonic()
        connection.request("POST", "/v1/completions", sent, {"X-Request-Id": NAME})
        answer = connection.getresponse()
        self.received_bytes = self.num_events = 0
        self.first_s = self.last_s = 0.0
        for line in answer:
            self.received_bytes += len(line)
            if line.startswith(b"data: {"):
                self.num_events += 1
                self.last_s = time.monotonic() - begin
                self.first_s = self.first_s or self.last_s
        self.whole_s = time.monotonic() - begin
        connection.close()


def counts(choice: dict[str, Any]) -> dict[str, object]:
    """What follows from the lengths alone, on every machine."""
    chunks = [f"{one['steps']} x {one['size']} tokens ({one['phase']})" for one in choice["chunks"]]
    works = {phase["phase"]: phase["work"] for phase in choice["phases"] if phase["work"] is not None}
    return {
        "chunks": ", ".join(chunks),
        "steps": choice["steps"],
        "tokens run": choice["computed_tokens"],
        "rows whose logits were made": sum(work["sampled_tokens"] for work in works.values()),
        "blocks held at the first token": held(choice),
        "most blocks held": choice["max_blocks"],
    }


def held(choice: dict[str, Any]) -> int:
    """Blocks when the first token came."""
    before = [number for moment_s, number in choice["blocks"]["over_time"] if moment_s < choice["first_token_s"]]
    return int(before[-1])


def table(title: str, rows: dict[str, object]) -> None:
    """Two columns."""
    print(f"{title}\n")
    for name, value in rows.items():
        print(f"    {name:<40} {value:,}" if isinstance(value, int) else f"    {name:<40} {value}")
    print()


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    this_machine(default_root())
    with serving(options.model, options.threads) as address:
        prompt = prompt_of(address)
        seen = Seen(address, prompt)
        time.sleep(0.2)  # so that the note has come that the answer has left
        form = asked(address, "GET", f"/v1/requests/{NAME}")
        load = asked(address, "GET", "/load")
    (choice,) = form["choices"]
    request = GenerateRequest(
        request_id=form["id"],
        prompt_token_ids=[20000] * PROMPT_TOKENS,
        params=SamplingParams(max_tokens=OUTPUT_TOKENS, temperature=0, seed=0),
    )
    sizes = {
        "characters of the prompt": len(prompt),
        "bytes of the HTTP body": seen.sent_bytes,
        "bytes of the GenerateRequest": len(msgspec.msgpack.encode(request)),
        "server-sent events": seen.num_events,
        "bytes of the answer": seen.received_bytes,
    }
    table("Sizes", dict(sizes))
    table("Counts", counts(choice))
    gap_ms = (seen.last_s - seen.first_s) / (OUTPUT_TOKENS - 1) * 1e3
    times = {
        "client: first event": f"{seen.first_s:.3f} s",
        "client: between tokens, mean": f"{gap_ms:.2f} ms",
        "client: whole answer": f"{seen.whole_s:.4f} s",
        "ledger: sum of phases": f"{choice['e2e_s']:.4f} s",
    }
    table("Times", dict(times))
    table("The pool, when all was over", {"free blocks": load["num_free_blocks"], "blocks": load["num_blocks"]})
    print("\n".join(explain(form)))


if __name__ == "__main__":
    main()
