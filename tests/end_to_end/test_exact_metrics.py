"""Metrics of a known workload are the known counts, whichever process is asked, and aborts leave no gauge behind."""

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.end_to_end.test_api_processes import Caller, Family, family
from tests.scraping import Scrape, parsed
from tests.server.conftest import wait_until

NUM_CLIENTS = 4
NONE = "none=e2el:0.001"
"""No answer is as quick as that."""
LASTING = {
    "octavo:engine_up",
    "vllm:cache_config_info",
    "octavo:decode_step_seconds",
    "octavo:prefill_tokens_per_second",
}
"""Gauges that say something about an engine at rest."""


@dataclass(frozen=True)
class Job:
    """A completion: prompts of token ids, n answers to each, of known lengths."""

    prompts: tuple[int, ...]
    """Their lengths."""
    n: int
    max_tokens: int
    stream: bool

    def body(self, number: int) -> dict[str, Any]:
        """Prompts begin with a token of their own, so that nothing of them is cached."""
        prompts = [[3 + number, 100 + place, *range(10, 8 + length)] for place, length in enumerate(self.prompts)]
        return {
            "prompt": prompts,
            "n": self.n,
            "max_tokens": self.max_tokens,
            "stream": self.stream,
            "ignore_eos": True,
            "temperature": 0,
        }

    @property
    def num_answers(self) -> int:
        return self.n * len(self.prompts)


JOBS = [
    Job(prompts, n, max_tokens, stream)
    for prompts, n, max_tokens, stream in zip(
        itertools.cycle([(5,), (17, 3), (40,), (2, 2, 9), (70,)]),
        itertools.cycle([1, 1, 2]),
        itertools.cycle([1, 4, 9, 30]),
        itertools.islice(itertools.cycle([False, True, True]), 40),
        strict=False,
    )
]


@pytest.fixture(scope="module")
def server(tiny_file: str) -> Iterator[Family]:
    flags = (
        "--max-num-seqs",
        "6",
        "--no-enable-prefix-caching",
        "--speculation",
        "off",
        "--goodput",
        "all=e2el:1e9",
        "--goodput",
        "none=e2el:0.001",
    )
    with family(tiny_file, "--served-model-name", "tiny", *flags, count=2) as made:
        yield made


def look(caller: Caller) -> Scrape:
    """At one process's /metrics."""
    return parsed(caller.ask("GET", "/metrics").read().decode())


def grown(after: Scrape, before: Scrape) -> dict[str, float]:
    """Sample with its labels as text -> by how much."""
    return {
        f"{name}{dict(sorted(held))}": value - before.samples.get((name, held), 0.0)
        for (name, held), value in after.samples.items()
    }


def test_a_known_workload_is_counted_exactly(server: Family) -> None:
    before = look(server.callers[0])
    watched: list[Scrape] = []
    done = threading.Event()

    def watch() -> None:
        for caller in itertools.cycle(server.connected()):
            watched.append(look(caller))
            if done.is_set():
                return

    def work(share: int) -> None:
        with httpx.Client(base_url=server.process.url, timeout=120) as http:
            for number in range(share, len(JOBS), NUM_CLIENTS):
                assert http.post("/v1/completions", json=JOBS[number].body(number)).status_code == 200

    with ThreadPoolExecutor(NUM_CLIENTS + 1) as pool:
        watching = pool.submit(watch)
        try:
            list(pool.map(work, range(NUM_CLIENTS)))
        finally:
            done.set()
        watching.result()
    after = [look(caller) for caller in server.callers]
    for scrape in after:
        check_counts(scrape, before)
    for earlier, later in itertools.pairwise([before, *watched, after[0]]):
        known = later.counters()
        fallen = {key: (value, known[key]) for key, value in earlier.counters().items() if known[key] < value}
        assert not fallen


def check_counts(after: Scrape, before: Scrape) -> None:
    def count(name: str, **labels: str) -> float:
        earlier = before.value(name, **labels) if any(known == name for known, _ in before.samples) else 0.0
        return after.value(name, **labels) - earlier

    num_answers = sum(job.num_answers for job in JOBS)
    num_prompts = sum(len(job.prompts) for job in JOBS)
    prompt_tokens = sum(job.n * sum(job.prompts) for job in JOBS)
    tokens = sum(job.num_answers * job.max_tokens for job in JOBS)
    several = sum(job.num_answers for job in JOBS if job.max_tokens > 1)
    assert count("vllm:prompt_tokens_total") == count("vllm:request_prompt_tokens_sum") == prompt_tokens
    assert count("vllm:prompt_tokens_by_source_total", source="local_compute") == prompt_tokens
    assert count("vllm:prompt_tokens_cached_total") == count("vllm:prefix_cache_hits_total") == 0
    assert count("vllm:request_prefill_kv_computed_tokens_sum") == prompt_tokens
    assert count("vllm:generation_tokens_total") == count("vllm:request_generation_tokens_sum") == tokens
    ended = after.by("vllm:request_success_total", "finished_reason")
    assert ended == {
        "length": num_answers + before.by("vllm:request_success_total", "finished_reason").get("length", 0)
    }
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds"):
        assert count(f"vllm:{name}_count") == num_answers, name
        assert count(f"vllm:{name}_bucket", le="+Inf") == num_answers, name
    for name in ("prefill", "decode", "inference"):
        assert count(f"vllm:request_{name}_time_seconds_count") == num_answers, name
    assert count("vllm:request_time_per_output_token_seconds_count") == several
    assert count("vllm:inter_token_latency_seconds_count") == tokens - num_answers
    assert count("vllm:request_params_n_count") == len(JOBS)
    assert count("vllm:request_params_n_sum") == sum(job.n for job in JOBS)
    assert count("vllm:request_params_max_tokens_sum") == sum(job.max_tokens for job in JOBS)
    assert count("vllm:request_max_num_generation_tokens_count") == num_prompts
    assert count("vllm:request_max_num_generation_tokens_sum") == sum(len(j.prompts) * j.max_tokens for j in JOBS)
    lengths = Counter(length for job in JOBS for length in job.prompts for _ in range(job.n))
    for bound in (2, 5, 10, 50, 100):
        below = sum(number for length, number in lengths.items() if length <= bound)
        assert count("vllm:request_prompt_tokens_bucket", le=f"{bound}.0") == below, bound
    assert count("vllm:iteration_tokens_total_sum") == prompt_tokens + tokens - num_answers
    assert count("vllm:iteration_tokens_total_count") == count("octavo:engine_steps_total")
    assert count("octavo:step_duration_seconds_count") == count("octavo:engine_steps_total")
    parts = sum(after.by("octavo:step_part_seconds_total", "part").values())
    assert 0 < parts <= after.value("octavo:step_duration_seconds_sum") * 1.000001
    assert count("http_requests_total", handler="/v1/completions", status="2xx") == len(JOBS)
    assert count("http_request_duration_seconds_count", handler="/v1/completions") == len(JOBS)
    sent = [httpx.Request("POST", "http://x", json=job.body(number)) for number, job in enumerate(JOBS)]
    announced = sum(int(request.headers["content-length"]) for request in sent)
    assert count("http_request_size_bytes_sum", handler="/v1/completions") == announced
    for name, outcome, other in (("all", "met", "missed"), ("none", "missed", "met")):
        assert count("octavo:slo_requests_total", slo_class=name, outcome=outcome) == num_answers
        assert count("octavo:slo_requests_total", slo_class=name, outcome=other) == 0
    assert after.by("octavo:slo_misses_total", "slo_class") == {"none": num_answers}
    for phase in ("prefill", "decode"):
        share = count("octavo:request_share_seconds_total", phase=phase)
        assert 0 < share <= count("octavo:request_step_seconds_total", phase=phase)
    inference = count("vllm:request_inference_time_seconds_sum")
    assert sum(count("octavo:request_phase_seconds_total", phase=phase) for phase in ("prefill", "decode")) == (
        pytest.approx(inference, abs=0.001 * num_answers)
    )
    assert count("vllm:estimated_flops_per_gpu_total") > 0 and count("vllm:estimated_read_bytes_per_gpu_total") > 0
    check_at_rest(after)


def check_at_rest(scrape: Scrape) -> None:
    """No gauge tells of work."""
    held = {
        (name, tuple(sorted(labels))): value
        for (name, labels), value in scrape.gauges().items()
        if value and name not in LASTING and ("state", "free") not in labels and ("state", "cached") not in labels
    }
    assert not held
    assert scrape.value("octavo:kv_blocks", state="free") == scrape.value("octavo:kv_blocks")


NUM_ABORTED = 200
CHOICES = 4
"""Of each; more than run at one time, so that hardly any has ended when its client leaves."""


def test_after_200_aborts_all_gauges_are_zero(server: Family) -> None:
    """Half of the clients leave in mid-stream, half are told by /v1/abort that it is over."""
    before = look(server.callers[0])
    body = {"prompt": "x", "n": CHOICES, "max_tokens": 600, "ignore_eos": True, "temperature": 0, "stream": True}

    asked: list[str] = []

    def leave(http: httpx.Client) -> None:
        asked.append("leaves")
        with http.stream("POST", "/v1/completions", json=body) as answer:
            pieces = answer.iter_lines()  # held: a stream closes when its iterator is thrown away
            assert next(pieces)

    def be_aborted(http: httpx.Client) -> bool:
        """False: it came too late."""
        asked.append("is aborted")
        with http.stream("POST", "/v1/completions", json=body) as answer:
            pieces = answer.iter_lines()
            name = next(pieces).split('"id":"')[1].split('"')[0]
            told = http.post("/v1/abort", json={"request_ids": [name]})
            aborted = told.json()["aborted"]
            assert any('"finish_reason":"abort"' in piece for piece in pieces) == (aborted == [name])
            return bool(aborted)

    def work(_: int) -> None:
        with httpx.Client(base_url=server.process.url, timeout=120) as http:
            for _ in range(NUM_ABORTED // 8 // 2):
                leave(http)
                while not be_aborted(http):
                    pass
            leave(http)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))

    def quiet() -> bool:
        scrape = look(server.callers[0])
        return not scrape.value("vllm:num_requests_running") and not scrape.value("octavo:http_requests_in_flight")

    wait_until(quiet, "all have ended", timeout_s=30)
    for caller in server.callers:
        after = look(caller)
        check_at_rest(after)
        ended = endings(after)
        in_engine = {reason: after.value(f"octavo:engine_finished_{reason}_total") for reason in ("length", "abort")}
        assert set(ended) <= set(in_engine) and sum(ended.values()) == sum(in_engine.values())
        assert ended["abort"] >= in_engine["abort"]  # an end that nobody was left to be told of is an abort
        assert sum(ended.values()) - sum(endings(before).values()) == len(asked) * CHOICES
        assert ended["abort"] - endings(before).get("abort", 0) >= NUM_ABORTED


def endings(scrape: Scrape) -> dict[str, float]:
    """Finish reason -> choices."""
    return scrape.by("vllm:request_success_total", "finished_reason")
