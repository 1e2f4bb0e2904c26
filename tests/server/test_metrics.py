"""Metrics: vLLM's names, truthful after aborts, and equal to the usage that clients saw."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from octavo.config import ServerConfig
from octavo.errors import ConfigError
from octavo.server.app import read_promises
from tests import scraping
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
                for name in ("finished_reason", "reason", "state", "status", "position", "layer")
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


def test_experts_are_told_by_layer(server: FakeServer) -> None:
    samples = scrape(server.url)
    assert [samples["octavo:expert_tokens_total", layer] for layer in "03"] == [80, 0]
    assert samples["octavo:expert_imbalance", "0"] == 2.5
    assert ("octavo:expert_imbalance", "3") not in samples, "no token, no imbalance"


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


VLLM = {
    "gauge": "num_requests_running num_requests_waiting num_requests_waiting_by_reason{reason} kv_cache_usage_perc "
    "num_requests_kv_fetch_by_stage{stage} cache_config_info",
    "counter": "prefix_cache_queries prefix_cache_hits external_prefix_cache_queries external_prefix_cache_hits "
    "prompt_tokens_cached prompt_tokens_cached_by_source{source} prompt_tokens prompt_tokens_by_source{source} "
    "generation_tokens num_preemptions request_success{finished_reason} admission_rejections{reason} "
    "spec_decode_num_drafts spec_decode_num_draft_tokens spec_decode_num_accepted_tokens "
    "spec_decode_num_accepted_tokens_per_pos{position}",
    "histogram": "request_prompt_tokens request_generation_tokens request_max_num_generation_tokens request_params_n "
    "request_params_max_tokens request_num_preemptions request_prefill_kv_computed_tokens iteration_tokens_total "
    "time_to_first_token_seconds inter_token_latency_seconds request_time_per_output_token_seconds "
    "e2e_request_latency_seconds request_queue_time_seconds request_inference_time_seconds "
    "request_prefill_time_seconds request_decode_time_seconds",
}
"""Names of vLLM that mean something here, and their labels beside model_name and engine."""
EDGES = {
    "time_to_first_token_seconds": (22, 0.001, 2560),
    "inter_token_latency_seconds": (22, 0.001, 80),
    "e2e_request_latency_seconds": (23, 0.05, 7680),
    "iteration_tokens_total": (15, 1, 16384),
    "request_prompt_tokens": (10, 1, 512),
}
"""Number of buckets below +Inf, the first and the last."""
VLLM_EDGES = {
    "inter_token_latency_seconds": "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80",
    "e2e_request_latency_seconds": "0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680",
    "time_to_first_token_seconds": "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 "
    "640 2560",
}


def test_names_labels_and_buckets_are_those_of_vllm(server: FakeServer, http: httpx.Client) -> None:
    server.engine.queue_full = True
    http.post("/v1/completions", json={"prompt": "x"})
    server.engine.queue_full = False
    http.post("/v1/completions", json={"prompt": "x", "max_tokens": 3})
    scraped = scraping.scrape(server.url)
    for kind, names in VLLM.items():
        for name in names.split():
            family, _, label = name.rstrip("}").partition("{")
            assert scraped.kinds.get(f"vllm:{family}") == kind, name
            common = {"model_name"} if family == "admission_rejections" else {"model_name", "engine"}
            wanted = common | ({label} if label else set())
            sample = family + {"gauge": "", "counter": "_total", "histogram": "_bucket"}[kind]
            held = [
                {label for label, _ in labels} - {"le"}
                for known, labels in scraped.samples
                if known == f"vllm:{sample}"
            ]
            assert held, name
            if family != "cache_config_info":
                assert all(labels == wanted for labels in held), name
    for family, (count, first, last) in EDGES.items():
        edges = edges_of(scraped, family)
        assert (len(edges), edges[0], edges[-1]) == (count, first, last), family
    for family, known in VLLM_EDGES.items():
        assert set(map(float, known.split())) <= set(edges_of(scraped, family)), family


def edges_of(scraped: scraping.Scrape, family: str) -> list[float]:
    """Upper bounds, but for +Inf."""
    bounds = [float(dict(held)["le"]) for name, held in scraped.samples if name == f"vllm:{family}_bucket"]
    return sorted(bound for bound in bounds if bound != float("inf"))


def test_cache_metrics_tell_tiers_from_the_device(server: FakeServer) -> None:
    """The stand-in has found 40 of 100 prompt tokens, 16 of them on disk."""
    scraped = scraping.scrape(server.url)
    assert scraped.value("vllm:prompt_tokens_cached_total") == 40
    assert scraped.value("vllm:prefix_cache_hits_total") == 24
    assert scraped.value("vllm:external_prefix_cache_hits_total") == 16
    assert scraped.value("vllm:external_prefix_cache_queries_total") == 90 - 24
    by_source = {"local_compute": 60, "local_cache_hit": 24, "external_kv_transfer": 16}
    assert scraped.by("vllm:prompt_tokens_by_source_total", "source") == by_source
    assert scraped.by("vllm:prompt_tokens_cached_by_source_total", "source") == {"device": 24, "disk": 16}


class Ticking:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def judged(scraped: scraping.Scrape, name: str) -> tuple[float, float, dict[str, float]]:
    """Of a class: how many were met and missed, and why."""
    met, missed = (scraped.value("octavo:slo_requests_total", slo_class=name, outcome=one) for one in ("met", "missed"))
    reasons = {
        dict(held)["reason"]: value
        for (sample, held), value in scraped.samples.items()
        if sample == "octavo:slo_misses_total" and ("slo_class", name) in held
    }
    return met, missed, reasons


def test_goodput_judges_every_answer_by_every_class() -> None:
    clock = Ticking()
    config = ServerConfig(port=0, goodput=("quick=ttft:500,e2el:60000", "calm=ttft:5000 itl:1500"))
    with running_server(fake, config, clock=clock) as running:

        def post(**body: Any) -> int:
            return httpx.post(f"{running.url}/v1/completions", json={"prompt": "x", **body}).status_code

        assert post(max_tokens=3, n=2) == 200
        running.in_loop(running.engine.gate.clear)  # holds back all but first tokens
        body = {"prompt": "x", "max_tokens": 3, "stream": True}
        with httpx.stream("POST", f"{running.url}/v1/completions", json=body) as answer:
            pieces = answer.iter_lines()
            next(pieces)
            clock.now_s += 2.0  # a gap of 2 s behind the first token
            running.in_loop(running.engine.gate.set)
            assert list(pieces)[-2] == "data: [DONE]"
        running.engine.fail_after["bad"] = 1
        assert post(prompt="bad", max_tokens=3) == 500
        running.engine.queue_full = True
        assert post(n=2) == 429
        scraped = scraping.scrape(running.url)
    assert judged(scraped, "quick") == (3, 3, {"error": 1, "rejected": 2})
    assert judged(scraped, "calm") == (2, 4, {"itl": 1, "error": 1, "rejected": 2})


def test_promises_that_cannot_be_read_are_refused_at_start() -> None:
    with pytest.raises(ConfigError, match=r"goodput.*known: ttft, tpot, itl, e2el"):
        read_promises(ServerConfig(goodput=("chat=fast:3",)))
    with pytest.raises(ConfigError, match=r"goodput='chat=ttft:0': write limits in milliseconds"):
        read_promises(ServerConfig(goodput=("chat=ttft:0",)))
    with pytest.raises(ConfigError, match="two classes of one name"):
        read_promises(ServerConfig(goodput=("ttft:3", "tpot:4")))


def test_sizes_and_times_of_all_answers(server: FakeServer, http: httpx.Client) -> None:
    answer = http.post("/v1/completions", json={"prompt": "x", "max_tokens": 3})
    for path in ("/health", "/ready", "/load", "/metrics"):
        http.get(path)
    scraped = scraping.scrape(server.url)
    handler = "/v1/completions"
    assert scraped.value("http_request_size_bytes_sum", handler=handler) == len(answer.request.content)
    assert scraped.value("http_response_size_bytes_sum", handler=handler) == len(answer.content)
    assert scraped.value("http_request_duration_highr_seconds_count") == 1
    assert scraped.by("http_requests_total", "handler") == {handler: 1}


def test_every_token_behind_the_first_counts_once_whatever_was_held_back(server: FakeServer) -> None:
    """Pieces of 2, 1, 3, 1 and 4 tokens: characters of several, and what might have become a stop string."""
    answer = "éa日bEND."
    server.engine.scripts["x"] = list(answer.encode())
    body = {"prompt": "x", "max_tokens": len(answer.encode()), "stop": "ENDS", "stream": True}
    lines = httpx.post(f"{server.url}/v1/completions", json=body).text.splitlines()
    pieces = [line for line in lines if '"text":"' in line and '"text":""' not in line]
    assert len(pieces) == 5
    scraped = scraping.scrape(server.url)
    name = "vllm:inter_token_latency_seconds"
    assert scraped.value(f"{name}_count") == scraped.value("vllm:generation_tokens_total") - 1 == 10
    assert scraped.value(f"{name}_bucket", le="0.001") >= 1
    first, last = (scraped.value(f"vllm:{each}_seconds_sum") for each in ("time_to_first_token", "e2e_request_latency"))
    assert scraped.value(f"{name}_sum") == pytest.approx(last - first)
    mean = scraped.value("vllm:request_time_per_output_token_seconds_sum")
    assert scraped.value(f"{name}_sum") == pytest.approx(10 * mean)
