"""A server of OpenAI's protocol whose every answer follows a script: what it sends, and when. Real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.bench.load.client import Connect

Beat = tuple[float, bytes]
"""Seconds after the one before (the first: after the request was read), and what is sent then; no bytes: hang up."""
Script = Callable[[int, dict[str, Any]], list[Beat]]
"""Number of the request, its body -> the whole answer."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
HANG_UP = b""


def chunked(body: bytes) -> bytes:
    """One HTTP chunk; of nothing the last."""
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


def event(data: dict[str, Any]) -> bytes:
    """One server-sent event in a chunk of its own."""
    return chunked(b"data: " + json.dumps(data).encode() + b"\n\n")


def text(said: str, finish_reason: str | None = None) -> bytes:
    """A chunk of a completion."""
    return event({"choices": [{"index": 0, "text": said, "finish_reason": finish_reason}]})


def delta(**said: Any) -> bytes:
    """A chunk of a chat."""
    return event({"choices": [{"index": 0, "delta": said, "finish_reason": None}]})


def usage(prompt: int, completion: int, cached: int | None = None) -> bytes:
    """The chunk with the counts, and the end."""
    counts: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion}
    counts |= {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return event({"choices": [], "usage": counts}) + END


END = chunked(b"data: [DONE]\n\n") + chunked(b"")


def refusal(status: int, message: str) -> bytes:
    """An error as OpenAI words it."""
    body = json.dumps({"error": {"message": message, "type": "x", "param": None, "code": None}}).encode()
    return f"HTTP/1.1 {status} No\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def answer(first_s: float, gap_s: float, tokens: int, prompt: int = 7) -> list[Beat]:
    """A completion: its first token after `first_s`, the others each `gap_s` later."""
    beats = [(first_s, HEAD + text("a"))] + [(gap_s, text("b")) for _ in range(tokens - 1)]
    return [*beats, (0.0, text("", "length") + usage(prompt, tokens))]


def chat_answer(first_s: float, gap_s: float, tokens: int, prompt: int = 7) -> list[Beat]:
    """The same of a chat, whose first chunk says who speaks."""
    role = [(0.0, HEAD + delta(role="assistant", content=""))]
    beats = [(gap_s if number else first_s, delta(content="a")) for number in range(tokens)]
    finished = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
    return [*role, *beats, (0.0, finished + usage(prompt, tokens))]


def whole(data: dict[str, Any]) -> bytes:
    """An answer that is no stream."""
    body = json.dumps(data).encode()
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class ScriptedServer:
    """`requests` holds (time, body) of all that came."""

    script: Script
    requests: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    connections: int = 0
    hung_up_on: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        try:
            while True:
                await self._answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, EOFError):
            pass
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        length = next((line.split(":")[1] for line in head.split("\r\n") if line.startswith("Content-Length")), "0")
        body = await reader.readexactly(int(length))
        if head.startswith("GET /v1/models "):
            listed = b'{"object": "list", "data": [{"id": "scripted", "object": "model"}]}'
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(listed)}\r\n\r\n".encode() + listed)
            return
        loop = asyncio.get_running_loop()
        self.requests.append((loop.time(), json.loads(body)))
        for delay_s, data in self.script(len(self.requests) - 1, self.requests[-1][1]):
            if delay_s:
                await asyncio.sleep(delay_s)
            if reader.at_eof() or writer.transport.is_closing():
                self.hung_up_on += 1
                raise EOFError
            if not data:
                raise EOFError
            writer.write(data)


@asynccontextmanager
async def listening(server: ScriptedServer, folder: Path) -> AsyncIterator[Connect]:
    """Has a server listen on a Unix socket of the running loop; gives what connects to it. Ends when the server has
    noticed that its clients are gone."""
    path, loop = str(folder / "s"), asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(loop.create_task(server.serve(reader, writer)))

    listener = await asyncio.start_unix_server(accepted, path)
    try:
        yield lambda make: loop.create_unix_connection(make, path)
    finally:
        listener.close()
        await asyncio.gather(*tasks)
