"""Clients that leave and requests that are aborted at any point: the traffic, and what must be left of it: nothing."""

import asyncio
import gc
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil

from octavo import AsyncLLM
from tests.server.conftest import wait_until
from tests.server.running import RunningServer

WORDS = ("the sheet was folded into sixteen pages " * 12).split()

SHAPES: list[dict[str, Any]] = [{"structured_outputs": {"regex": f"[a-z ]{{{n},}}"}} for n in range(20, 24)] + [
    {"structured_outputs": {"choice": ["yes", "no"]}},
    {"structured_outputs": {"json": {"type": "object"}}},
]
"""Of answers: their requests wait for grammars first."""


@dataclass
class Traffic:
    """So many requests, so many at one time; `seed` decides what each asks for and how it ends."""

    count: int
    at_one_time: int = 24
    seed: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    """How they ended."""

    def run(self, url: str) -> None:
        """Sends everything from an event loop of its own."""
        asyncio.run(self._run(url))

    async def _run(self, url: str) -> None:
        turns, chance = asyncio.Semaphore(self.at_one_time), random.Random(self.seed)
        orders = [_Order.random(random.Random(chance.random()), number) for number in range(self.count)]

        async def one(order: "_Order") -> None:
            async with turns:
                self.ends[await order.send(url)] += 1

        await asyncio.gather(*(one(order) for order in orders))


@dataclass
class _Order:
    path: str
    body: dict[str, Any]
    name: str
    end: str
    """full | cut | abort"""
    after_bytes: int
    delay_s: float

    @classmethod
    def random(cls, chance: random.Random, number: int) -> "_Order":
        text = " ".join(chance.choices(WORDS, k=chance.choice([1, 5, 60, 150])))
        body: dict[str, Any] = {
            "stream": chance.random() < 0.6,
            "n": chance.choice([1, 1, 1, 2, 3]),
            "max_tokens": chance.choice([1, 5, 40, 200]),
            "temperature": chance.choice([0, 1]),
            "seed": number,
            "ignore_eos": chance.random() < 0.7,
            "logprobs": None,
            "stop": ["a"] if chance.random() < 0.15 else None,
        }
        if chance.random() < 0.5:
            path, body["prompt"] = "/v1/completions", text
            body["logprobs"] = chance.choice([None, 2])
        else:
            path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": text}]
        if chance.random() < 0.2:
            body |= SHAPES[chance.randrange(len(SHAPES))] | {"ignore_eos": False, "stop": None}
        if chance.random() < 0.2:
            body |= {"session_id": f"s{chance.randrange(5)}", "session_lease_s": 3600}
        return cls(
            path=path,
            body={name: value for name, value in body.items() if value is not None},
            name=f"chaos-{number}",
            end=chance.choices(["full", "cut", "abort"], [1, 3, 2])[0],
            after_bytes=chance.choice([0, 0, 1, 300, 3000]),
            delay_s=chance.choice([0, 0, 0.001, 0.01, 0.05]),
        )

    async def send(self, url: str) -> str:
        """Sends the request over a connection of its own; returns how it ended."""
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(self._wire())
            await writer.drain()
            if self.end == "full":
                return "full" if await reader.read(-1) else "nothing"
            await self._wait(reader)
            if self.end == "cut":
                return "cut"
            await self._abort(url)
            rest = await reader.read(-1)
            return "aborted" if b'"finish_reason":"abort"' in rest else "too late"
        finally:
            if self.end == "cut":
                writer.transport.abort()
            writer.close()

    async def _wait(self, reader: asyncio.StreamReader) -> None:
        """For some of the answer, if it streams, or for a moment."""
        if self.after_bytes and self.body["stream"]:
            got = 0
            while got < self.after_bytes and (part := await reader.read(self.after_bytes)):
                got += len(part)
        else:
            await asyncio.sleep(self.delay_s)

    async def _abort(self, url: str) -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            await client.post(f"{url}/v1/abort", json={"request_id": self.name})

    def _wire(self) -> bytes:
        content = json.dumps(self.body).encode()
        head = f"POST {self.path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: {self.name}\r\n"
        return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


@dataclass(frozen=True)
class Holdings:
    """What a server and its engine hold when nothing is asked of them."""

    num_free_blocks: int
    num_tasks: int
    num_fds: int
    num_core_fds: int
    num_live: int
    num_queues: int
    num_calls: int
    num_in_flight: int
    num_running: int
    num_waiting: int
    num_connections: int

    @classmethod
    def of(cls, server: RunningServer[AsyncLLM]) -> "Holdings":
        """As they are now, less the blocks of sessions."""
        engine = server.engine
        load = httpx.get(f"{server.url}/load").json()
        client = engine._client
        return server.in_loop(
            lambda: cls(
                num_free_blocks=load["num_free_blocks"] + load["num_pinned_blocks"],
                num_tasks=len(asyncio.all_tasks()),
                num_fds=psutil.Process().num_fds(),
                num_core_fds=psutil.Process(engine.core_pid).num_fds(),
                num_live=len(engine._live),
                num_queues=len(client._queues),
                num_calls=len(client._calls),
                num_in_flight=load["num_http_in_flight"],
                num_running=load["num_running"],
                num_waiting=load["num_waiting"],
                num_connections=len(server.http._uvicorn.server_state.connections),
            )
        )


def at_rest(server: RunningServer[AsyncLLM], timeout_s: float = 20) -> Holdings:
    """What the server holds once nothing is asked of it any more: who left a moment ago may still run."""
    seen: list[Holdings] = []

    def rests() -> bool:
        now = Holdings.of(server)
        seen.append(now)
        return now.num_live + now.num_running + now.num_waiting + now.num_in_flight + now.num_connections == 0

    wait_until(rests, "nothing is asked", timeout_s)
    return seen[-1]


def settled(server: RunningServer[AsyncLLM], before: Holdings, timeout_s: float = 20) -> None:
    """Waits until the server holds what it held before; fails with the difference if it does not come to that."""
    now: list[Holdings] = []

    def back() -> bool:
        gc.collect()
        now.append(Holdings.of(server))
        return now[-1] == before

    try:
        wait_until(back, "all is given back", timeout_s)
    except BaseException as error:
        raise AssertionError(f"not given back: {now[-1]}, before it was {before}") from error


def counted(server: RunningServer[AsyncLLM], name: str) -> dict[str, float]:
    """Samples of a metric: labels -> value."""
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    found = [line.rpartition(" ") for line in lines if line.startswith((name + "{", name + " "))]
    return {labels: float(value) for labels, _, value in found}


class Complaints:
    """What an event loop says of tasks that nobody looks after."""

    def __init__(self, server: RunningServer[AsyncLLM]) -> None:
        self.heard: list[str] = []
        self._in_loop: Callable[..., Any] = server.in_loop
        server.in_loop(self._listen)

    def _listen(self) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.heard.append(str(context)))
