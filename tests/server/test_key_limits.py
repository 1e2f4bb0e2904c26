"""Limits of an API key: exact, told to the client, and given back whatever happens. The clock stands still."""

import hashlib
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from octavo.config import ServerConfig
from octavo.server.api_keys import ApiKey, KeyLimits
from octavo.server.errors import ApiError
from octavo.server.key_limits import KeyLimiter, duration
from octavo.server.usage_ledger import UsageLedger
from tests.server.conftest import FakeServer, fake, wait_until
from tests.server.running import running_server
from tests.server.test_lifecycle import ENDLESS, send_raw
from tests.server.test_refusals import check_error


@dataclass
class Clock:
    """Time that passes when told."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[FakeServer]:
    """alice may use little, bob as much as he likes."""
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("alice", "bob", "carol")}
    path = tmp_path / "keys.yaml"
    path.write_text(
        "keys:\n"
        f"  - {{name: alice, sha256: {digests['alice']}, requests_per_minute: 4, tokens_per_minute: 100}}\n"
        f"  - {{name: bob, sha256: {digests['bob']}}}\n"
        f"  - {{name: carol, sha256: {digests['carol']}, concurrent_requests: 2}}\n"
    )
    CLOCK.now = 1000.0
    config = ServerConfig(port=0, shutdown_timeout=5, api_key_file=str(path))
    with running_server(fake, config, clock=CLOCK) as running:
        yield running


def post(server: FakeServer, key: str = "alice", path: str = "/v1/completions", **body: Any) -> httpx.Response:
    sent = {"prompt": "x", "max_tokens": 2, **body}
    return httpx.post(server.url + path, json=sent, headers={"Authorization": f"Bearer {key}"}, timeout=30)


def test_requests_per_minute(limited: FakeServer) -> None:
    for left in (3, 2, 1, 0):
        answer = post(limited)
        assert answer.status_code == 200
        assert answer.headers["x-ratelimit-limit-requests"] == "4"
        assert answer.headers["x-ratelimit-remaining-requests"] == str(left)
        assert answer.headers["x-ratelimit-reset-requests"] == "1m1s"  # the slot ends a quarter of a second late
        CLOCK.now += 10
    refused = post(limited)
    error = check_error(refused, 429)
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert "'alice' may use 4 requests per minute" in error["message"]
    assert refused.headers["retry-after"] == "21"  # the first was 40 s ago
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert post(limited, "bob").status_code == 200, "others do not feel it"
    CLOCK.now += 20
    assert post(limited).status_code == 429
    CLOCK.now += 1
    assert post(limited).status_code == 200, "as promised, and a refusal costs nothing"
    assert post(limited).status_code == 429


def test_reading_and_ending_go_through(limited: FakeServer) -> None:
    for _ in range(4):
        post(limited)
    headers = {"Authorization": "Bearer alice"}
    assert post(limited, path="/tokenize").status_code == 429
    answer = httpx.get(f"{limited.url}/v1/models", headers=headers)
    assert answer.status_code == 200
    assert "x-ratelimit-limit-requests" not in answer.headers
    for path in ("/v1/abort", "/v1/sessions/x/extend"):
        assert post(limited, path=path).status_code in (400, 404)


def test_no_headers_without_limits(limited: FakeServer) -> None:
    assert not [name for name in post(limited, "bob").headers if name.startswith("x-ratelimit")]


def test_tokens_per_minute_count_what_usage_says(limited: FakeServer) -> None:
    answer = post(limited, prompt="x" * 30, max_tokens=20, n=2, ignore_eos=True)
    usage = answer.json()["usage"]["total_tokens"]
    assert usage == 31 + 2 * 20
    assert answer.headers["x-ratelimit-limit-tokens"] == "100"
    CLOCK.now += 10
    refused = post(limited, prompt="x" * (100 - usage))  # and a BOS: one too many
    error = check_error(refused, 429)
    assert f"100 tokens per minute, and this request's prompt has {101 - usage} tokens" in error["message"]
    assert refused.headers["retry-after"] == "51"
    assert refused.headers["x-ratelimit-remaining-tokens"] == str(100 - usage)
    assert post(limited, prompt="x" * (99 - usage), max_tokens=10).status_code == 200, "what is left may be used up"
    assert check_error(post(limited, prompt="x"), 429)["code"] == "rate_limit_exceeded"
    CLOCK.now += 61
    assert post(limited, prompt="x" * 300).status_code == 200, "more than the limit passes when nothing else counts"


def test_vectors_cost_their_prompts(limited: FakeServer) -> None:
    body = {"input": ["x" * 20, "y" * 30]}
    headers = {"Authorization": "Bearer alice"}
    answer = httpx.post(f"{limited.url}/v1/embeddings", json=body, headers=headers)
    assert answer.status_code == 200
    assert tokens_used(limited, "alice") == answer.json()["usage"]["total_tokens"] >= 50
    assert httpx.post(f"{limited.url}/v1/embeddings", json=body, headers=headers).status_code == 429


def test_streams_count_as_they_go(limited: FakeServer) -> None:
    limited.in_loop(limited.engine.gate.clear)
    with httpx.stream(
        "POST",
        f"{limited.url}/v1/completions",
        json=ENDLESS | {"stream": True},
        headers={"Authorization": "Bearer alice"},
    ) as answer:
        next(answer.iter_raw())
        at_first = tokens_used(limited, "alice")
        assert at_first == len("endless") + 1 + 1, "the prompt with its BOS, and one token"
    wait_until(lambda: not limited.engine.live, "the request ended")
    limited.in_loop(limited.engine.gate.set)
    assert tokens_used(limited, "alice") == at_first, "what an abandoned request has cost stays spent"


def tokens_used(server: FakeServer, name: str) -> int:
    (key,) = [key for key in server.context.keys.user.keys if key.name == name]
    tokens = server.in_loop(lambda: server.context.limiter.headers(key)["x-ratelimit-remaining-tokens"])
    return key.limits.tokens_per_minute - int(tokens)


def test_what_the_queue_refuses_costs_no_tokens(limited: FakeServer) -> None:
    limited.engine.queue_full = True
    for stream in (False, True):
        assert check_error(post(limited, stream=stream), 429)["code"] == "queue_full"
    assert tokens_used(limited, "alice") == 0
    assert post(limited, prompt="x" * 600).status_code == 400
    assert tokens_used(limited, "alice") == 0


@pytest.mark.parametrize("stream", [True, False])
def test_concurrent_requests(limited: FakeServer, stream: bool) -> None:
    limited.in_loop(limited.engine.gate.clear)
    connections = [send_raw(limited.url, ENDLESS | {"stream": stream}, "Authorization: Bearer carol") for _ in range(2)]
    wait_until(lambda: len(limited.engine.live) == 2, "both run")
    refused = post(limited, "carol")
    error = check_error(refused, 429)
    assert error["code"] == "concurrency_limit_exceeded"
    assert "2 requests at one time" in error["message"]
    assert refused.headers["retry-after"] == "1"
    connections.pop().close()
    wait_until(lambda: in_progress(limited, "carol") == 1, "its place is free")
    limited.in_loop(limited.engine.gate.set)
    assert post(limited, "carol").status_code == 200
    connections.pop().close()
    wait_until(lambda: in_progress(limited, "carol") == 0, "nothing leaks")


def in_progress(server: FakeServer, name: str) -> int:
    (key,) = [key for key in server.context.keys.user.keys if key.name == name]
    return server.in_loop(lambda: server.context.limiter.in_progress(key))


def test_nothing_leaks_whatever_becomes_of_a_request(limited: FakeServer) -> None:
    limited.engine.fail_after["poison"] = 0
    for body in ({"prompt": "poison"}, {"prompt": "poison", "stream": True}, {"prompt": 5}, {"max_tokens": -1}):
        for _ in range(3):
            assert post(limited, "carol", **body).status_code in (400, 500)
    half = send_raw(limited.url, ENDLESS, "Authorization: Bearer carol", missing=5)
    wait_until(lambda: in_progress(limited, "carol") == 1, "a half request counts")
    half.close()
    wait_until(lambda: in_progress(limited, "carol") == 0, "nothing leaks")
    for number in range(20):
        send_raw(limited.url, ENDLESS | {"stream": number % 2 == 0}, "Authorization: Bearer carol").close()
    wait_until(lambda: post(limited, "carol").status_code == 200, "there is room again")
    wait_until(lambda: in_progress(limited, "carol") == 0, "nothing leaks")


def test_many_at_once_get_exactly_the_limit(limited: FakeServer) -> None:
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: post(limited).status_code, range(24)))
    assert sorted(answers) == [200] * 4 + [429] * 20


def test_the_stock_client_sees_a_rate_limit(limited: FakeServer) -> None:
    with openai.OpenAI(base_url=f"{limited.url}/v1", api_key="alice", max_retries=0) as client:
        for _ in range(4):
            client.completions.create(model="fake", prompt="x")
        with pytest.raises(openai.RateLimitError, match="4 requests per minute"):
            client.completions.create(model="fake", prompt="x")


def test_refusals_are_counted(limited: FakeServer) -> None:
    for _ in range(6):
        post(limited)
    metrics = httpx.get(f"{limited.url}/metrics", headers={"Authorization": "Bearer bob"}).text
    assert 'octavo:requests_rejected_total{engine="0",model_name="fake",reason="rate_limit_exceeded"} 2.0' in metrics


def test_without_keys_all_clients_are_one() -> None:
    config = ServerConfig(port=0, key_requests_per_minute=2)
    with running_server(fake, config, clock=CLOCK) as running:
        assert [post(running, key).status_code for key in "abc"] == [200, 200, 429]
        assert "all clients" in post(running, "d").json()["error"]["message"]


ALICE = ApiKey(name="alice", digest=b"a" * 32, limits=KeyLimits(requests_per_minute=50, concurrent_requests=1000))


def _take_many(path: Path, process: int, start: Any, results: Any) -> None:
    limiter = KeyLimiter(UsageLedger([ALICE], path, process=process, num_processes=2), lambda: 1000.0)
    start.wait(timeout=60)
    taken = 0
    for _ in range(40):
        try:
            with limiter.taken(ALICE):
                taken += 1
        except ApiError:
            pass
    results.put(taken)


def test_several_processes_share_one_count(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start, results = context.Event(), context.Queue()
    workers = [
        context.Process(target=_take_many, args=(tmp_path / "usage", number, start, results)) for number in range(2)
    ]
    for worker in workers:
        worker.start()
    start.set()
    counts = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(timeout=60)
    assert sum(counts) == 50, counts


def test_a_process_that_begins_anew_holds_nothing(tmp_path: Path) -> None:
    def ledger(process: int) -> UsageLedger:
        return UsageLedger([ALICE], tmp_path / "usage", process=process, num_processes=2)

    first, second = ledger(0), ledger(1)
    for one in (first, second, second):
        one.of(ALICE).enter()
    assert first.of(ALICE).in_progress == 3
    assert ledger(1).of(ALICE).in_progress == 1
    assert (tmp_path / "usage").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (0.0301, "31ms"), (1, "1s"), (6.5, "7s"), (60, "1m0s"), (89.2, "1m30s")]
)
def test_durations_are_spelled_as_openai_does(seconds: float, text: str) -> None:
    assert duration(seconds) == text
