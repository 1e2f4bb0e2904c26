"""The clients of `front_end.py` that must not share an interpreter with what it measures.

python front_end_client.py offend PORT KIND SECONDS      sends large requests one after the other
python front_end_client.py streams PORT COUNT TOKENS     reads so many streams at one time
"""

import asyncio
import http.client
import json
import sys
import time
from collections.abc import Callable
from typing import Any

MIB = 2**20
Request = tuple[str, dict[str, Any]]


def text(_: int) -> Request:
    """A text of 1 MiB, of which little is kept."""
    prompt = ("The quick brown fox jumps over the lazy dog; 1,234 times.\n" * (MIB // 50))[:MIB]
    return "/v1/completions", {"prompt": prompt, "truncate_prompt_tokens": 50, "max_tokens": 1}


def lists(_: int) -> Request:
    """12 MB of empty lists."""
    return "/v1/completions", {"prompt": "x", "metadata": {"a": [[]] * 3_000_000}}


def schema(number: int) -> Request:
    """A schema that nobody has sent before."""
    shape = {"enum": [f"value {number} of {other}" for other in range(5000)]}
    named = {"name": "big", "schema": {"type": "object", "properties": {"a": shape}, "required": ["a"]}}
    response_format = {"type": "json_schema", "json_schema": named}
    messages = [{"role": "user", "content": "hi"}]
    return "/v1/chat/completions", {"messages": messages, "max_tokens": 1, "response_format": response_format}


KINDS: dict[str, Callable[[int], Request]] = {"text": text, "lists": lists, "schema": schema}
PREPARED = 40
"""Requests that are made before the first is sent."""


def offend(port: int, kind: str, seconds: float) -> None:
    """Sends requests for so long; each is answered before the next. Says `made` when they are prepared."""
    made = [KINDS[kind](time.time_ns() + number) for number in range(PREPARED if kind == "schema" else 1)]
    bodies = [(path, json.dumps(body).encode()) for path, body in made]
    print("made", flush=True)
    deadline, number = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        path, body = bodies[number % len(bodies)]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        connection.getresponse().read()
        connection.close()
        number += 1


async def stream(port: int, number: int, tokens: int) -> None:
    """One stream, to its end.

    Raises:
        SystemExit: it is not whole.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"prompt": [300 + number], "max_tokens": tokens, "temperature": 0, "stream": True}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: octavo\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    tail = b""
    while part := await reader.read(1 << 16):
        tail = (tail + part)[-100:]
    writer.close()
    if b"[DONE]" not in tail:
        raise SystemExit(f"stream {number} is not whole: {tail!r}")


async def streams(port: int, count: int, tokens: int) -> None:
    """All at one time."""
    await asyncio.gather(*(stream(port, number, tokens) for number in range(count)))


if __name__ == "__main__":
    if sys.argv[1] == "offend":
        offend(int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
    else:
        asyncio.run(streams(*map(int, sys.argv[2:5])))
