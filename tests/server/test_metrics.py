"""Metrics: vLLM's names, truthful after aborts, and equal to the usage that clients saw."""

from collections.abc import Iterator

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from octavo.config import ServerConfig
from tests.server.conftest import FakeServer, fake, wait_until
from tests.server.running import running_server

PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos"
Samples = dict[tuple[str, str], float]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with running_server(fake) as running:
        yield running


def scrape(url: str) -> Samples:
    """(name, value of the label that tells series apart, or '') -> value."""
    samples: Samples = {}
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics").text):
        for sample in family.samples:
            extra = [
                sample.labels[name]
                for name in ("finished_reason", "reason", "state", "status", "position")
                if name in sample.labels
            ]
            samples[sample.name, "".join(extra)] = sample.value
    return samples


def finished(samples: Samples) -> dict[str, float]:
    return {
        reason: value for (name, reason), value in samples.items() if name == "vllm:request_success_total" and value
    }


def test_counts_agree_with_usage(server: FakeServer, client: openai.OpenAI) -> None:
    answers = [
        client.completions.create(model="fake", prompt=["a b", "c"], n=2, max_tokens=5),
        client.chat.completions.create(model="fake", messages=[{"role": "user", "content": "hi"}], max_tokens=7),
    ]
    server.engine.scripts["stops"] = list(b"ab")
    answers.append(client.completions.create(model="fake", prompt="stops"))
    samples = scrape(server.url)
    usages = [answer.usage for answer in answers if answer.usage is not None]
    assert samples["vllm:generation_tokens_total", ""] == sum(usage.completion_tokens for usage in usages)
    assert samples["vllm:request_generation_tokens_sum", ""] == sum(usage.completion_tokens for usage in usages)
    assert finished(samples) == {"length": 5, "stop": 1}
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds"):
        assert samples[f"vllm:{name}_count", ""] == 6
    assert samples["vllm:request_params_n_sum", ""] == 4
    assert samples["vllm:request_decode_time_seconds_sum", ""] == pytest.approx(6 * 0.3)
    assert samples["octavo:engine_steps_total", ""] == 3
    assert samples["octavo:kv_blocks", "free"] == 1000
    assert samples["http_requests_total", "2xx"] >= 1


def test_speculation_has_the_names_of_vllm(server: FakeServer) -> None:
    samples = scrape(server.url)
    assert samples["vllm:spec_decode_num_drafts_total", ""] == 8
    assert samples["vllm:spec_decode_num_draft_tokens_total", ""] == 14
    assert samples["vllm:spec_decode_num_accepted_tokens_total", ""] == 12
    per_position = {place: samples[f"{name}_total", place] for place in "01" for name in [PER_POSITION]}
    assert per_position == {"0": 7, "1": 5} and (f"{PER_POSITION}_total", "2") not in samples
    assert [samples["octavo:draft_tokens_per_pos_total", place] for place in "01"] == [8, 6]
    assert samples["octavo:engine_wasted_draft_tokens_total", ""] == 3
    assert samples["octavo:mean_acceptance_length", ""] == 2.5


def test_aborts_are_counted_and_gauges_return(server: FakeServer, http: httpx.Client) -> None:
    server.in_loop(server.engine.gate.clear)
    for _ in range(5):
        with http.stream("POST", "/v1/completions", json={"prompt": "x", "max_tokens": 400, "stream": True}) as answer:
            parts = answer.iter_bytes()  # held: a stream closes when its iterator is thrown away
            assert next(parts)
            samples = scrape(server.url)
            assert samples["vllm:num_requests_running", ""] >= 1
            assert samples["octavo:http_requests_in_flight", ""] >= 1
    wait_until(lambda: not server.engine.live, "all generations ended")
    samples = scrape(server.url)
    assert samples["vllm:num_requests_running", ""] == 0
    assert samples["vllm:num_requests_waiting", ""] == 0
    assert samples["vllm:kv_cache_usage_perc", ""] == 0
    assert finished(samples) == {"abort": 5}
    assert samples["octavo:http_requests_in_flight", ""] == 0


def test_rejections_and_errors_have_their_counters(server: FakeServer, http: httpx.Client) -> None:
    server.engine.queue_full = True
    assert http.post("/v1/completions", json={"prompt": "x", "n": 2}).status_code == 429
    server.engine.queue_full = False
    server.engine.fail_after["poison"] = 1
    assert http.post("/v1/completions", json={"prompt": "poison"}).status_code == 500
    for bad in (
        {"prompt": "x", "n": 0},
        {"prompt": "x" * 600},
        {"prompt": "x", "model": "y"},
        {"prompt": "x", "typo": 1},
        {},
    ):
        assert http.post("/v1/completions", json=bad).status_code in (400, 404)
    samples = scrape(server.url)
    rejected = {reason: value for (name, reason), value in samples.items() if name == "octavo:requests_rejected_total"}
    reasons = ("queue_full", "invalid_value", "context_length_exceeded", "model_not_found", "unknown_field")
    assert rejected == dict.fromkeys(reasons, 1) | {"missing_field": 1}
    assert finished(samples) == {"error": 1}


def test_a_dead_engine_still_gives_metrics(server: FakeServer, http: httpx.Client) -> None:
    server.in_loop(lambda: server.engine.kill("test"))
    samples = scrape(server.url)
    assert samples["octavo:engine_up", ""] == 0
    assert ("vllm:num_requests_running", "") not in samples


def test_prefix_and_hostile_paths() -> None:
    with running_server(fake, ServerConfig(port=0, metrics_prefix="mine_")) as running:
        for number in range(50):
            httpx.get(f"{running.url}/made-up-{number}")
        text = httpx.get(f"{running.url}/metrics").text
    assert "mine_num_requests_running" in text
    assert "vllm:" not in text
    assert "made-up" not in text
