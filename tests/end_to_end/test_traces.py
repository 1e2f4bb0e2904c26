"""Traces of a real engine's requests, as a collector gets them."""

import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from octavo import AsyncLLM
from octavo.config import EngineConfig, ServerConfig
from tests.end_to_end.conftest import SETTINGS
from tests.end_to_end.test_api_processes import family, streamed
from tests.server.otlp_collector import INTERNAL_KIND, CollectedSpan, Collector, collecting
from tests.server.running import RunningServer, running_server

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SILENT = CALLER[:-2] + "00"
SLOW: dict[str, Any] = SETTINGS | {"executor": "reference", "served_model_name": ("tiny",)}
"""An engine that takes its time, so that a test can step in."""


@pytest.fixture(scope="module")
def listening() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@pytest.fixture
def collector(listening: Collector) -> Collector:
    """Without what came before."""
    listening.spans.clear()
    return listening


@pytest.fixture(scope="module")
def server(listening: Collector, tiny_file: str) -> Iterator[RunningServer[AsyncLLM]]:
    """A traced server with places for four requests, and not KV enough for four long ones. Spans leave at once."""
    settings = SLOW | {"model": tiny_file, "max_num_seqs": 4, "num_kv_blocks": 12, "max_model_len": 160}

    async def start() -> AsyncLLM:
        return await AsyncLLM.start(EngineConfig.from_fields(settings))

    config = ServerConfig(port=0, shutdown_timeout=5, otlp_traces_endpoint=listening.url)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        with running_server(start, config, stop_engine=AsyncLLM.shutdown) as running:
            yield running


def post(server: RunningServer[AsyncLLM], path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    return httpx.post(server.url + path, json=body, headers=headers, timeout=60)


def ledger_of(server: RunningServer[AsyncLLM], span: CollectedSpan) -> dict[str, Any]:
    """What /v1/requests/{id} says of a span's request."""
    answer = httpx.get(f"{server.url}/v1/requests/{span.attributes['gen_ai.response.id']}", timeout=60)
    assert answer.status_code == 200
    return dict(answer.json())


def check_times(span: CollectedSpan, arrived_ns: int, choice: dict[str, Any]) -> None:
    """The events of a span, to the nanosecond of floats, against the ledger of its sequence."""
    told = {"scheduled": "first_scheduled_s", "first_token": "first_token_s", "finished": "finished_s"}
    times = [event.at_ns for event in span.events]
    assert times == sorted(times) and span.start_ns <= times[0] and times[-1] <= span.end_ns
    assert span.at_ns("queued") == arrived_ns
    for event, entry in told.items():
        if choice[entry] is not None:
            assert span.at_ns(event) - arrived_ns == pytest.approx(choice[entry] * 1e9, abs=1000)
        else:
            assert event not in span.story
    assert span.story.count("preempted") == choice["preemptions"]
    phases = {name: value for name, value in span.attributes.items() if name.startswith("octavo.phase.")}
    waits = [value for name, value in span.attributes.items() if name.startswith("octavo.wait.")]
    whole_s = (span.at_ns("finished") - arrived_ns) / 1e9
    assert sum(phases.values()) == pytest.approx(whole_s, abs=1e-3) and phases["octavo.phase.queue_s"] >= 0
    waiting = sum(phases.get(f"octavo.phase.{phase}_s", 0.0) for phase in ("queue", "preempted", "stalled"))
    assert sum(waits) == pytest.approx(waiting, abs=1e-3)


def test_a_request_is_one_span_below_its_callers(server: RunningServer[AsyncLLM], collector: Collector) -> None:
    before_ns = time.time_ns()
    body = {"prompt": "The quick brown fox", "max_tokens": 8, "temperature": 0.5, "seed": 3, "ignore_eos": True}
    answer = post(server, "/v1/completions", body, traceparent=CALLER, tracestate="vendor=value,other=1")
    after_ns = time.time_ns()
    (span,) = collector.wait(1)
    assert len(collector.spans) == 1
    assert (span.name, span.trace_id, span.parent_id) == ("text_completion tiny", CALLER[3:35], CALLER[36:52])
    assert span.trace_state == "vendor=value,other=1"
    assert answer.headers["traceresponse"] == f"00-{span.trace_id}-{span.span_id}-01"
    assert before_ns - 10**6 <= span.start_ns < span.end_ns <= after_ns + 10**9
    assert span.story == ["queued", "scheduled", "first_token", "finished"]
    ledger, usage = ledger_of(server, span), answer.json()["usage"]
    assert span.at_ns("queued") == pytest.approx(ledger["arrived_at"] * 1e9, abs=50e6)
    check_times(span, span.at_ns("queued"), ledger["choices"][0])
    said = span.attributes
    assert said["gen_ai.usage.input_tokens"] == said["gen_ai.usage.prompt_tokens"] == usage["prompt_tokens"]
    assert said["gen_ai.usage.output_tokens"] == said["gen_ai.usage.completion_tokens"] == 8
    assert said["gen_ai.response.finish_reasons"] == ["length"]
    assert said["gen_ai.response.id"] == answer.json()["id"]
    assert said["gen_ai.request.temperature"] == 0.5 and said["gen_ai.request.seed"] == 3
    assert said["gen_ai.request.max_tokens"] == 8 and said["gen_ai.request.stream"] is False
    assert said["http.response.status_code"] == 200 and not span.failed
    assert said["octavo.steps"] == ledger["choices"][0]["steps"] and said["octavo.preemptions"] == 0
    assert span.resource["service.name"] == "octavo"


def test_latencies_are_the_distances_between_events(server: RunningServer[AsyncLLM], collector: Collector) -> None:
    post(server, "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6})
    (span,) = collector.wait(1)
    times = {event.name: event.at_ns for event in span.events} | {"begin": span.start_ns}
    distances = {
        "time_in_queue": ("queued", "scheduled"),
        "time_in_model_prefill": ("scheduled", "first_token"),
        "time_in_model_decode": ("first_token", "finished"),
        "time_in_model_inference": ("scheduled", "finished"),
        "time_to_first_token": ("begin", "first_token"),
        "e2e": ("begin", "finished"),
    }
    said = {name: span.attributes[f"gen_ai.latency.{name}"] * 1e9 for name in distances}
    assert span.name == "chat tiny"
    assert said == {name: pytest.approx(times[end] - times[start], abs=10) for name, (start, end) in distances.items()}


def test_the_callers_choice_of_samples_is_kept(server: RunningServer[AsyncLLM], collector: Collector) -> None:
    body = {"prompt": "x", "max_tokens": 1}
    silent = post(server, "/v1/completions", body, traceparent=SILENT)
    assert silent.status_code == 200 and "traceresponse" not in silent.headers
    for broken in ("00-zz", CALLER.replace("0af7", "XXXX"), "00-" + "0" * 32 + CALLER[35:]):
        assert post(server, "/v1/completions", body, traceparent=broken).status_code == 200
    twice = httpx.post(
        f"{server.url}/v1/completions", json=body, headers=[("traceparent", CALLER), ("traceparent", SILENT)]
    )
    assert twice.status_code == 200
    spans = collector.wait(4)
    assert all(span.parent_id == "" and span.trace_id != CALLER[3:35] for span in spans)


def test_what_generates_nothing_has_no_span(server: RunningServer[AsyncLLM], collector: Collector) -> None:
    assert httpx.get(f"{server.url}/v1/models").status_code == 200
    assert post(server, "/tokenize", {"prompt": "x"}).status_code == 200
    assert post(server, "/v1/completions", {"prompt": "x", "max_tokens": 1}).status_code == 200
    assert [span.attributes["url.path"] for span in collector.wait(1)] == ["/v1/completions"]


def test_preemptions_are_events_at_their_time(server: RunningServer[AsyncLLM], collector: Collector) -> None:
    body = {"max_tokens": 60, "temperature": 0, "ignore_eos": True}
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda letter: post(server, "/v1/completions", body | {"prompt": letter * 24}), "abcd"))
    assert all(answer.status_code == 200 for answer in answers)
    preempted = 0
    for span in collector.wait(4):
        ledger = ledger_of(server, span)
        check_times(span, span.at_ns("queued"), ledger["choices"][0])
        assert span.attributes["octavo.preemptions"] == ledger["choices"][0]["preemptions"]
        assert span.attributes["octavo.recomputed_tokens"] == ledger["choices"][0]["recomputed_tokens"]
        preempted += ledger["choices"][0]["preemptions"]
    assert preempted > 0


def test_choices_have_spans_of_their_own(server: RunningServer[AsyncLLM], collector: Collector) -> None:
    body = {"prompt": ["ab", "cd"], "n": 2, "max_tokens": 5, "temperature": 1, "seed": 1, "ignore_eos": True}
    answer = post(server, "/v1/completions", body).json()
    (span,) = collector.wait(1)
    children = collector.children_of(span)
    ledger = ledger_of(server, span)
    assert span.story == ["queued", "scheduled", "first_token", "finished"]
    assert span.attributes["gen_ai.usage.output_tokens"] == answer["usage"]["completion_tokens"] == 20
    assert span.attributes["gen_ai.response.finish_reasons"] == ["length"] * 4
    assert span.attributes["gen_ai.request.choice.count"] == 2 and span.attributes["gen_ai.usage.num_sequences"] == 4
    assert [child.name for child in children] == [f"sequence {index}" for index in range(4)]
    assert all(child.kind == INTERNAL_KIND and child.trace_id == span.trace_id for child in children)
    for child in children:
        assert child.start_ns == child.at_ns("queued") and child.end_ns == child.at_ns("finished")
        assert child.attributes["gen_ai.usage.output_tokens"] == 5
    for phase, pick in (("queued", min), ("scheduled", min), ("first_token", min), ("finished", max)):
        assert span.at_ns(phase) == pick(child.at_ns(phase) for child in children)
    steps = [choice["steps"] for choice in ledger["choices"]]
    assert sorted(child.attributes["octavo.steps"] for child in children) == sorted(steps)
    assert span.attributes["octavo.steps"] == sum(steps)


def test_a_stream_that_a_stop_string_ends(server: RunningServer[AsyncLLM], collector: Collector) -> None:
    whole = post(server, "/v1/completions", {"prompt": "ab", "max_tokens": 12, "temperature": 0, "ignore_eos": True})
    stop = whole.json()["choices"][0]["text"][4:7]
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        chunks = list(
            client.completions.create(
                model="tiny",
                prompt="ab",
                max_tokens=12,
                temperature=0,
                stop=stop,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"ignore_eos": True},
            )
        )
    span = collector.wait(2)[1]
    usage = chunks[-1].usage
    assert span.attributes["gen_ai.request.stream"] is True
    assert span.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    assert usage is not None and span.attributes["gen_ai.usage.output_tokens"] == usage.completion_tokens
    check_times(span, span.at_ns("queued"), ledger_of(server, span)["choices"][0])
    assert span.story[-1] == "finished"


def test_a_client_that_leaves(server: RunningServer[AsyncLLM], collector: Collector) -> None:
    body = {"prompt": "abc", "max_tokens": 100, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as answer:
        next(answer.iter_lines())
    (span,) = collector.wait(1)
    assert span.attributes["gen_ai.response.finish_reasons"] == ["abort"] and not span.failed
    assert span.story == ["queued", "scheduled", "first_token", "finished"]
    check_times(span, span.at_ns("queued"), ledger_of(server, span)["choices"][0])


def test_each_choice_is_told_apart(server: RunningServer[AsyncLLM], collector: Collector) -> None:
    """Some end by a stop string, the others when the client leaves."""
    body = {"prompt": ["ab", "cdefg"], "n": 2, "max_tokens": 90, "seed": 5, "ignore_eos": True}
    ended: dict[int, str] = {}
    texts = {c["index"]: c["text"] for c in post(server, "/v1/completions", body).json()["choices"]}
    others = texts[0] + texts[1] + texts[3]
    stop = next(texts[2][at : at + 5] for at in range(30) if texts[2][at : at + 5] not in others)
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body | {"stop": stop, "stream": True}) as answer:
        for line in answer.iter_lines():
            choices = json.loads(line.removeprefix("data: "))["choices"] if line else []
            ended |= {choice["index"]: "stop" for choice in choices if choice["finish_reason"]}
            if 2 in ended:
                break
    span = collector.wait(2)[1]
    reasons = span.attributes["gen_ai.response.finish_reasons"]
    assert list(ended) == [2] and reasons == ["abort", "abort", "stop", "abort"]
    children = collector.children_of(span)
    assert [child.attributes["gen_ai.response.finish_reasons"] for child in children] == [[one] for one in reasons]
    assert [child.attributes["gen_ai.usage.input_tokens"] for child in children] == [2, 2, 4, 4]


def test_refusals_say_why_and_are_no_errors_of_the_server(
    server: RunningServer[AsyncLLM], collector: Collector
) -> None:
    assert post(server, "/v1/completions", {"prompt": "x", "temperature": -1}).status_code == 400
    assert post(server, "/v1/chat/completions", {"messages": [], "model": "other"}).status_code == 404
    bad, unknown = collector.wait(2)
    assert (bad.attributes["error.type"], bad.attributes["http.response.status_code"]) == ("invalid_value", 400)
    assert unknown.attributes["error.type"] == "model_not_found"
    assert not bad.failed and bad.events == [] and not unknown.failed


def test_an_embedding_has_no_first_token(server: RunningServer[AsyncLLM], collector: Collector) -> None:
    assert post(server, "/v1/embeddings", {"input": ["one", "two"]}).status_code == 200
    (span,) = collector.wait(1)
    assert span.name == "embeddings tiny" and span.story == ["queued", "scheduled", "finished"]
    assert len(collector.children_of(span)) == 2
    assert "gen_ai.latency.time_to_first_token" not in span.attributes
    assert span.attributes["gen_ai.latency.time_in_model_inference"] > 0


def test_all_processes_of_a_server_tell(collector: Collector, tiny_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sends its own; at the end all send what they have left."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.url}/v1/traces")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    body = {"prompt": "x", "max_tokens": 3, "ignore_eos": True}
    with family(tiny_file, "--served-model-name", "tiny") as shared:
        for caller in shared.callers:
            caller.json("POST", "/v1/completions", body, traceparent=CALLER)
        streams = [
            caller.ask("POST", "/v1/completions", body | {"max_tokens": 300, "stream": True})
            for caller in shared.callers
        ]
        shared.process.popen.send_signal(signal.SIGTERM)
        lengths = [len(streamed(stream)) for stream in streams]
        assert shared.process.end()[0] == 0
        pids = {api.pid for api in shared.apis}
    spans = collector.wait(4)
    assert min(lengths) > 1 and {span.resource["process.pid"] for span in spans} == pids
    assert len({span.resource["service.instance.id"] for span in spans}) == 2
    assert sorted(span.attributes["gen_ai.usage.output_tokens"] for span in spans) == [3, 3, 300, 300]
    assert [span.trace_id for span in spans].count(CALLER[3:35]) == 2
    assert all(span.story[-1] == "finished" and span.name == "text_completion tiny" for span in spans)
