"""A random crowd over two API processes, mistreated: whatever became of a request, its ledger adds up, and the counters
of the server are the sums of the ledgers."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from tests.end_to_end.test_api_processes import Family, family
from tests.end_to_end.test_exact_metrics import LASTING, look
from tests.scraping import Scrape, parsed
from tests.server.conftest import wait_until

COUNT = 120
AT_ONCE = 12
MILLISECOND = 1e-3
MOST_IN_FLIGHT = 6
"""Drafts of two steps: of a request that ends while these are on their way nobody hears what became of them."""
ADMIN = {"Authorization": "Bearer admin"}
COMMON = "once upon a time there was a house and in that house there was a mouse "
FLAGS = (
    *("--served-model-name", "tiny", "--admin-key", "admin", "--block-size", "4", "--num-kv-blocks", "180"),
    *("--max-num-seqs", "10", "--max-num-batched-tokens", "24"),
    *("--admission-conservativeness", "0", "--kv-host-memory-bytes", "200000"),
)
DRAFTS = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}')


@pytest.fixture(params=[(), (*DRAFTS, "--async-scheduling")], ids=["plain", "drafts, planned ahead"])
def server(tiny_file: str, request: pytest.FixtureRequest) -> Iterator[Family]:
    with family(tiny_file, *FLAGS, *request.param, count=2) as made:
        yield made


class Crowd:
    """Clients of all kinds, and an operator who is not kind to them."""

    def __init__(self, http: httpx.AsyncClient, chance: random.Random) -> None:
        self._http, self._chance = http, chance
        self.names: list[str] = []
        self.live: set[str] = set()

    def _body(self) -> tuple[str, dict[str, Any]]:
        chance = self._chance
        text = COMMON[: chance.randrange(10, 70)] if chance.random() < 0.6 else f"{chance.random()} of its own " * 3
        common = {"temperature": chance.choice([0, 1]), "max_tokens": chance.choice([1, 5, 40, 150])}
        kind = chance.choice(["completions"] * 5 + ["chat/completions", "messages", "responses", "embeddings"])
        if kind == "embeddings":
            return kind, {"input": [text, text[:20]]}
        if kind == "responses":
            return kind, {"input": text, "max_output_tokens": 20, "stream": chance.random() < 0.5}
        body = common | {"stream": chance.random() < 0.5}
        if kind == "completions":
            prompt = text if chance.random() < 0.7 else [text, "another"]
            body |= {"prompt": prompt, "n": chance.choice([1, 1, 3]), "ignore_eos": chance.random() < 0.6}
            session = {"session_id": f"s{chance.randrange(3)}"} if prompt is text else {}
            body |= chance.choice([{}, {}, {"stop": ["e"]}, session])
            body |= chance.choice([{}, {}, {"structured_outputs": {"regex": f"[a-z{chance.randrange(9)}]{{3,20}}"}}])
            return kind, body
        return kind, body | {"messages": [{"role": "user", "content": text}]}

    async def client(self, number: int) -> None:
        name, chance = f"crowd-{number}", self._chance
        kind, body = self._body()
        self.names.append(name)
        self.live.add(name)
        leaves_after = chance.choice([None, None, None, 0.0, 0.01, 0.05, 0.3])
        with contextlib.suppress(TimeoutError):  # it has left
            async with asyncio.timeout(leaves_after):
                await self._ask(kind, body, name)
        self.live.discard(name)

    async def _ask(self, kind: str, body: dict[str, Any], name: str) -> None:
        async with self._http.stream("POST", f"/v1/{kind}", json=body, headers={"X-Request-Id": name}) as answer:
            await answer.aread()
            assert answer.status_code in (200, 499, 503, 429), answer.text

    async def operate(self) -> None:
        """Until cancelled."""
        acts = [self._pause, self._abort, self._abort, self._drain, self._forget, self._profile, self._look, self._look]
        while True:
            await asyncio.sleep(self._chance.uniform(0.02, 0.3))
            await self._chance.choice(acts)()

    async def admin(self, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        return await self._http.post(f"/admin/{path}", json=body or {}, headers=ADMIN)

    async def _pause(self) -> None:
        mode = self._chance.choice(["keep", "wait", "abort"])
        await self.admin("pause", {"mode": mode, "timeout_s": 0.2} if mode == "wait" else {"mode": mode})
        await asyncio.sleep(0.05)
        await self.admin("resume")

    async def _drain(self) -> None:
        await self.admin("drain", {"timeout_s": 0.1})
        await self.admin("resume")

    async def _forget(self) -> None:
        await self.admin("reset_prefix_cache")

    async def _profile(self) -> None:
        answer = await self.admin("profile", {"steps": 3, "seconds": 0.1})
        assert answer.status_code == 200 and answer.json()["traceEvents"]

    async def _look(self) -> None:
        """At accounts that are not closed yet, which must not change what they come to."""
        live = (await self._http.get("/admin/requests", headers=ADMIN)).json()["data"]
        for choice in [choice for request in live for choice in request["choices"]]:
            assert all(phase["seconds"] > 0 for phase in choice["phases"])
            works = [phase["work"] for phase in choice["phases"] if phase["work"] is not None]
            # The first step of a phase may be planned while the phase before it still lasts.
            assert 0 <= choice["steps"] - sum(work["steps"] for work in works) <= 1
            assert sum(work["tokens"] for work in works) >= choice["computed_tokens"]

    async def _abort(self) -> None:
        if self.live:
            name = self._chance.choice(sorted(self.live))
            await self._http.post("/v1/abort", json={"request_id": name})


async def watch(http: httpx.AsyncClient, seen: list[Scrape]) -> None:
    while True:
        seen.append(parsed((await http.get("/metrics")).text))
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def beside(*coroutines: Any) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(one) for one in coroutines]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_crowd(url: str, chance: random.Random) -> tuple[list[str], list[Scrape]]:
    places = asyncio.Semaphore(AT_ONCE)
    seen: list[Scrape] = []
    at_server = {"base_url": url, "timeout": 60}
    async with httpx.AsyncClient(**at_server) as http, httpx.AsyncClient(**at_server) as watcher:
        crowd = Crowd(http, chance)

        async def one(number: int) -> None:
            async with places:
                await crowd.client(number)

        async with beside(crowd.operate(), watch(watcher, seen)):
            await asyncio.gather(*map(one, range(COUNT)))
        await crowd.admin("resume")
    return crowd.names, seen


def check_choice(choice: dict[str, Any]) -> None:
    phases = {phase["phase"]: phase for phase in choice["phases"]}
    assert all(phase["seconds"] > 0 for phase in choice["phases"])
    around = sum(phases[name]["seconds"] for name in ("prepare", "submit") if name in phases)
    core_s = sum(phase["seconds"] for name, phase in phases.items() if name not in ("prepare", "submit", "deliver"))
    for name in {"queue", "preempted", "stalled"} & set(phases):
        assert sum(phases[name]["waits"].values()) == pytest.approx(phases[name]["seconds"], abs=MILLISECOND)
        assert all(spent >= 0 for spent in phases[name]["waits"].values()), phases[name]
    if choice["first_scheduled_s"] is not None:
        came_s = choice["first_scheduled_s"] - (phases["queue"]["seconds"] if "queue" in phases else 0)
        assert core_s == pytest.approx(choice["finished_s"] - came_s, abs=MILLISECOND)
    else:
        assert set(phases) <= {"prepare", "submit", "queue", "deliver"} and not choice["computed_tokens"]
    deliver = phases["deliver"]["seconds"] if "deliver" in phases else 0.0
    assert choice["e2e_s"] == pytest.approx(around + core_s + deliver, abs=MILLISECOND)
    works = [phase["work"] for phase in choice["phases"] if phase["work"] is not None]
    assert sum(work["steps"] for work in works) == choice["steps"] == sum(chunk["steps"] for chunk in choice["chunks"])
    in_flight = sum(work["tokens"] for work in works) - choice["computed_tokens"]
    assert in_flight == 0 or (0 < in_flight <= MOST_IN_FLIGHT and choice["finish_reason"] in ("abort", "stop"))
    drafts = (choice["speculation"] or {"draft_tokens": 0})["draft_tokens"]
    assert sum(chunk["tokens"] for chunk in choice["chunks"]) == choice["computed_tokens"] - drafts
    assert sum(choice["cached_tokens_by_tier"].values()) == choice["cached_tokens"] <= choice["prompt_tokens"]
    assert all(count >= 0 for count in choice["cached_tokens_by_tier"].values())
    if choice["finish_reason"] in ("stop", "length") and choice["output_tokens"]:
        held = choice["prompt_tokens"] + choice["output_tokens"] - 1 + choice["overrun_tokens"]
        assert held == choice["cached_tokens"] + choice["spared_tokens"] + choice["fresh_tokens"]


def ledgers(url: str, names: list[str]) -> list[dict[str, Any]]:
    """Of the choices of all requests that the core has heard of."""
    with httpx.Client(base_url=url, timeout=60) as http:
        found = [http.get(f"/v1/requests/{name}") for name in names]
    return [choice for answer in found if answer.status_code == 200 for choice in answer.json()["choices"]]


def check_sums(choices: list[dict[str, Any]], after: Scrape) -> None:
    def total(field: str) -> float:
        return sum(choice[field] for choice in choices)

    ran = [choice for choice in choices if choice["first_scheduled_s"] is not None]
    work = sum((phase["work"] or {"tokens": 0})["tokens"] for choice in choices for phase in choice["phases"])
    assert total("computed_tokens") <= after.value("octavo:engine_computed_tokens_total") <= work
    assert after.value("octavo:recomputed_tokens_total") == total("recomputed_tokens")
    assert after.value("vllm:num_preemptions_total") == total("preemptions")
    assert after.value("vllm:prompt_tokens_total") == sum(choice["prompt_tokens"] for choice in ran)
    assert after.value("vllm:prompt_tokens_cached_total") == total("cached_tokens")
    assert after.value("octavo:engine_resumed_cached_tokens_total") == total("resumed_cached_tokens")
    assert after.value("vllm:generation_tokens_total") == total("output_tokens")
    reasons = Counter(choice["finish_reason"] for choice in choices)
    by_core = {reason: after.value(f"octavo:engine_finished_{reason}_total") for reason in ("abort", "stop", "length")}
    assert by_core["abort"] == reasons["abort"] and by_core["stop"] <= reasons["stop"]
    assert sum(by_core.values()) == len(choices)
    drafts = [choice["speculation"] for choice in choices if choice["speculation"]]
    for name in ("draft_tokens", "accepted_tokens"):
        of_all = after.value(f"vllm:spec_decode_num_{name}_total")
        assert 0 <= of_all - sum(one[name] for one in drafts) <= work - total("computed_tokens"), name


def check_at_rest(scrape: Scrape) -> None:
    """No gauge tells of work; what is kept in case it is asked for again is none."""
    kept = {("state", "free"), ("state", "cached")}
    held = {
        (name, labels): value
        for (name, labels), value in scrape.gauges().items()
        if value and name not in LASTING | {"octavo:mean_acceptance_length"} and ":tier_" not in name
        if not kept & labels
    }
    assert not held


def test_whatever_becomes_of_a_request_its_ledger_adds_up(server: Family) -> None:
    names, seen = asyncio.run(run_crowd(server.process.url, random.Random(1)))
    caller = server.callers[0]
    wait_until(lambda: not caller.json("GET", "/admin/requests", None, **ADMIN)["data"], "all have ended")
    wait_until(lambda: look(caller).value("octavo:http_requests_in_flight") == 0, "all have been told")
    choices = ledgers(server.process.url, names)
    for choice in choices:
        check_choice(choice)
    for session in range(3):
        caller.ask("DELETE", f"/v1/sessions/s{session}").read()
    after = look(caller)
    check_sums(choices, after)
    check_at_rest(after)
    for earlier, later in zip(seen, [*seen[1:], after], strict=True):
        known = later.counters()
        fallen = {key: (value, known[key]) for key, value in earlier.counters().items() if known[key] < value}
        assert not fallen
    assert {"length", "stop", "abort"} <= {choice["finish_reason"] for choice in choices}
    assert sum(choice["cached_tokens"] for choice in choices) and sum(choice["steps"] for choice in choices)
