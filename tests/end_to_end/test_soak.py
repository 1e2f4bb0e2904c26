"""Small requests of all kinds without a pause: all end, nothing grows, and the pace stays."""

import asyncio
import faulthandler
import random
import time
from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import Any

import httpx
import psutil
import pytest

from octavo import AsyncLLM
from tests.effort import times
from tests.end_to_end.chaos import at_rest, settled
from tests.end_to_end.conftest import serving
from tests.server.running import RunningServer

AT_ONE_TIME, ROUNDS, PER_ROUND = 16, times(5), 200
STALL_S = 20.0
"""Without a single answer for so long, the server stands still, however busy the machine is."""
HI = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
KINDS: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("/v1/completions", {"prompt": "hello", "max_tokens": 3}, 200),
    ("/v1/completions", {"prompt": ["a", "b"], "n": 2, "max_tokens": 2, "logprobs": 1, "temperature": 1}, 200),
    ("/v1/completions", {"prompt": "hello " * 30, "max_tokens": 2, "stream": True}, 200),
    ("/v1/completions", {"prompt": "x", "max_tokens": 30, "stop": ["a"], "ignore_eos": True}, 200),
    ("/v1/completions", {"prompt": "x", "max_tokens": 0, "echo": True, "logprobs": 1}, 200),
    ("/v1/completions", {"prompt": "x", "max_tokens": 5, "structured_outputs": {"choice": ["yes", "no"]}}, 200),
    ("/v1/completions", {"prompt": "x", "session_id": "s", "session_lease_s": 1, "max_tokens": 2}, 200),
    ("/v1/chat/completions", {"messages": HI, "max_tokens": 3, "stream": True}, 200),
    ("/v1/chat/completions", {"messages": HI, "max_tokens": 3, "tools": [TOOL], "tool_choice": "none"}, 200),
    ("/v1/responses", {"input": "hello", "max_output_tokens": 16}, 200),
    ("/v1/messages", {"messages": HI, "max_tokens": 3}, 200),
    ("/v1/embeddings", {"input": ["hello", "x"]}, 200),
    ("/tokenize", {"messages": HI}, 200),
    ("/v1/completions", {"prompt": "x", "temperature": -1}, 400),
    ("/v1/completions", {"prompt": [9] * 5000}, 400),
    ("/v1/chat/completions", {"messages": "x"}, 400),
    ("/nowhere", {}, 404),
)


class Soak:
    """Random requests in rounds, with a watch over their progress."""

    def __init__(self, url: str) -> None:
        self.statuses: Counter[tuple[str, int, int]] = Counter()
        self.num_cut = 0
        self._url = url
        self._chance = random.Random(4)
        self._moved_s = time.monotonic()

    def round(self, count: int) -> float:
        """Sends so many; seconds that it took.

        Raises:
            TimeoutError: nothing moved for STALL_S; all threads' stacks are on stderr.
        """
        begin = time.monotonic()
        asyncio.run(self._round(count))
        return time.monotonic() - begin

    async def _round(self, count: int) -> None:
        orders = iter(self._chance.choices(KINDS, k=count))
        self._moved_s = time.monotonic()
        async with httpx.AsyncClient(base_url=self._url, timeout=None) as client:

            async def work() -> None:
                for path, body, wanted in orders:
                    await self._send(client, path, body, wanted)
                    self._moved_s = time.monotonic()

            working = asyncio.gather(*(work() for _ in range(AT_ONE_TIME)))
            while not working.done():
                await asyncio.wait([working], timeout=1)
                if time.monotonic() - self._moved_s > STALL_S:
                    working.cancel()
                    faulthandler.dump_traceback(all_threads=True)
                    raise TimeoutError(f"no answer for {STALL_S} s: {httpx.get(f'{self._url}/load').text}")
            await working

    async def _send(self, client: httpx.AsyncClient, path: str, body: dict[str, Any], wanted: int) -> None:
        if body.get("stream") and self._chance.random() < 0.3:
            async with client.stream("POST", path, json=body | {"max_tokens": 200, "ignore_eos": True}) as answer:
                async for _ in answer.aiter_bytes():
                    self.num_cut += 1
                    return
        answer = await client.post(path, json=body)
        self.statuses[path, wanted, answer.status_code] += 1


@pytest.fixture(scope="module")
def server(tiny_file: str) -> Iterator[RunningServer[AsyncLLM]]:
    with serving(tiny_file, num_kv_blocks=120, max_num_seqs=8) as running:
        yield running


def in_use(server: RunningServer[AsyncLLM]) -> list[int]:
    """Bytes and threads of the server's process and the core's: what is in memory or was swapped out."""
    processes = [psutil.Process(), psutil.Process(server.engine.core_pid)]
    memory = [process.memory_full_info() for process in processes]
    return [m.uss + m.swap for m in memory] + [process.num_threads() for process in processes]


@pytest.mark.slow
def test_thousands_of_requests_of_all_kinds(server: RunningServer[AsyncLLM]) -> None:
    soak = Soak(server.url)
    soak.round(2 * PER_ROUND)  # whatever is made once
    before, used = at_rest(server), [in_use(server)]
    paces = []
    for _ in range(ROUNDS):
        paces.append(soak.round(PER_ROUND))
        settled(server, before)
        used.append(in_use(server))
    assert soak.num_cut > 30
    assert {(wanted, got) for _, wanted, got in soak.statuses} == {(200, 200), (400, 400), (404, 404)}, soak.statuses
    assert median(paces[-3:]) < 3 * median(paces[:3]) + 1, paces
    middle, end = used[ROUNDS // 2], used[-1]
    grown = [(now - was) / 2**20 for was, now in zip(middle[:2], end[:2], strict=True)]
    assert max(grown) < 4, f"MiB more than after half of the requests, here and in the core: {grown}"
    assert end[2:] == middle[2:], "threads"
