"""Traces at the server's edge: failures of requests and of collectors, settings, what is left out."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from octavo.config import ServerConfig
from octavo.errors import ConfigError
from octavo.server.tracing import tracer as tracer_module
from octavo.server.tracing.start import check_tracing
from tests.server.conftest import FakeServer, fake, wait_until
from tests.server.otlp_collector import Collector, collecting
from tests.server.running import running_server

SECRET = "nobody must read this"
BODY: dict[str, Any] = {"prompt": SECRET, "max_tokens": 5, "ignore_eos": True, "temperature": 0}


@contextmanager
def traced(collector: Collector, **settings: Any) -> Iterator[FakeServer]:
    """A server that sends its spans there."""
    config = ServerConfig(port=0, shutdown_timeout=5, otlp_traces_endpoint=collector.url, **settings)
    with running_server(fake, config) as running:
        yield running


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans leave at once."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@pytest.fixture
def server(quick: None, collector: Collector) -> Iterator[FakeServer]:
    with traced(collector) as running:
        yield running


def complete(server: FakeServer, **more: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/completions", json=BODY | more, timeout=30)


def test_a_choice_that_fails_is_an_error_of_the_server(server: FakeServer, collector: Collector) -> None:
    server.engine.fail_after["bad"] = 2
    assert complete(server, prompt="bad").status_code == 500
    whole = collector.wait(1)[0]
    with httpx.stream("POST", f"{server.url}/v1/completions", json=BODY | {"prompt": "bad", "stream": True}) as answer:
        text = "".join(answer.iter_text())
    assert answer.status_code == 200 and "NaN" in text
    streamed = collector.wait(2)[1]
    for span, status in ((whole, 500), (streamed, 200)):
        assert span.failed and span.problem == "the row holds NaN"
        assert span.attributes["error.type"] == "generation_failed"
        assert span.attributes["http.response.status_code"] == status
        assert span.attributes["gen_ai.response.finish_reasons"] == ["error"]


def test_a_full_queue_and_a_dead_engine(server: FakeServer, collector: Collector) -> None:
    server.engine.queue_full = True
    assert complete(server).status_code == 429
    server.in_loop(lambda: server.engine.kill("gone"))
    wait_until(lambda: complete(server).status_code == 503, "the news")
    wait_until(lambda: len(collector.spans) > 1, "two spans")
    full, *dead = collector.spans
    assert full.attributes["error.type"] == "queue_full" and not full.failed and full.events == []
    assert full.attributes["gen_ai.response.finish_reasons"] == []
    assert all(span.failed and span.attributes["error.type"] == "engine_dead" for span in dead)


def test_nothing_of_the_content_leaves(quick: None, collector: Collector) -> None:
    with traced(collector, api_key=("sesame-open",)) as server:
        headers = {"Authorization": "Bearer sesame-open", "X-Request-Id": "mine"}
        body = BODY | {"stop": ["STOP HERE"], "user": "somebody"}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, headers=headers)
        assert answer.status_code == 200
        assert httpx.post(f"{server.url}/v1/completions", json=body).status_code == 401
        text = answer.json()["choices"][0]["text"]
    (span,) = collector.wait(1)  # who has no key leaves no trace
    told = repr(span) + repr(span.resource)
    assert not any(word in told for word in (SECRET, "STOP", "somebody", "sesame", text))


def test_a_key_at_its_limit(quick: None, collector: Collector) -> None:
    with traced(collector, key_requests_per_minute=1) as server:
        assert [complete(server).status_code for _ in range(2)] == [200, 429]
        late = collector.wait(2)[1]
    assert late.attributes["error.type"] == "rate_limit_exceeded" and not late.failed


def test_what_is_left_is_sent_at_the_end(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    with traced(collector) as server:
        assert all(complete(server).status_code == 200 for _ in range(3))
        assert collector.spans == []
    assert len(collector.wait(3)) == 3


def test_the_environment_says_the_rest(quick: None, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "chat-backend")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.instance.id=7")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=Bearer%20me")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    with traced(collector) as server:
        complete(server)
        (span,) = collector.wait(1)
    assert span.resource["service.name"] == "chat-backend" and span.resource["service.instance.id"] == "7"
    assert span.resource["deployment.environment.name"] == "test"
    path, headers = collector.requests[0]
    assert path == "/v1/traces"
    assert headers["authorization"] == "Bearer me" and headers["content-encoding"] == "gzip"


@pytest.mark.parametrize(("variable", "value"), [("OTEL_TRACES_SAMPLER", "always_off"), ("OTEL_SDK_DISABLED", "true")])
def test_the_environment_turns_it_off(
    variable: str, value: str, quick: None, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with traced(collector) as server:
        answer = complete(server)
    assert answer.status_code == 200 and "traceresponse" not in answer.headers
    assert collector.requests == []


def test_a_collectors_own_path_is_kept(quick: None, collector: Collector) -> None:
    collector.url += "/tenant/v1/traces"
    with traced(collector) as server:
        complete(server)
    assert collector.requests[0][0] == "/tenant/v1/traces"


def test_a_collector_that_refuses(quick: None, collector: Collector, caplog: pytest.LogCaptureFixture) -> None:
    collector.status = 400
    with traced(collector) as server:
        assert complete(server).status_code == 200
        wait_until(lambda: len(collector.requests) > 0, "the spans")
        assert complete(server).status_code == 200
    assert any("export" in record.message for record in caplog.records)


def test_a_collector_that_hangs_holds_nobody_up(
    quick: None, collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracer_module, "FLUSH_S", 0.1)
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    collector.open.clear()
    with traced(collector) as server:
        assert all(complete(server).status_code == 200 for _ in range(20))
    assert server.ended_well and any("the last traces are lost" in record.message for record in caplog.records)


def test_a_collector_that_is_not_there(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer_module, "FLUSH_S", 0.1)
    with collecting() as gone:
        pass
    with traced(gone) as server:
        assert complete(server).status_code == 200


def test_a_fault_of_ours_costs_the_span_alone(
    server: FakeServer, collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(tracer_module, "first_attributes", broken)
        assert complete(server).status_code == 200
    with monkeypatch.context() as patch:
        patch.setattr(tracer_module, "usage_attributes", broken)
        assert complete(server).status_code == 200
        (span,) = collector.wait(1)
    assert span.events == []
    assert {"a request goes untraced", "a span is not whole"} <= {record.message for record in caplog.records}


def test_a_fault_that_nobody_foresaw(
    server: FakeServer, collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(server.engine, "generate", broken)
    with caplog.at_level(logging.CRITICAL, "octavo"):
        assert complete(server).status_code == 500
    (span,) = collector.wait(1)
    assert span.failed and span.attributes["error.type"] == "ZeroDivisionError"


def test_without_the_extra_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ServerConfig(otlp_traces_endpoint="http://localhost:4318")
    check_tracing(config)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"otlp_traces_endpoint=.*pip install 'octavo\[otel\]'"):
        check_tracing(config)
    check_tracing(ServerConfig())


def test_the_command_says_so_before_it_loads_anything() -> None:
    program = "import sys; sys.modules['opentelemetry.sdk'] = None; from octavo.cli.main import main; main()"
    command = [sys.executable, "-c", program, "serve", "no-such-model", "--otlp-traces-endpoint", "http://127.0.0.1:1"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert told.returncode == 2 and told.stdout == ""
    assert "pip install 'octavo[otel]'" in told.stderr and "--otlp-traces-endpoint" in told.stderr


def test_another_protocol_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    config = ServerConfig(otlp_traces_endpoint="http://localhost:4317")
    with pytest.raises(ConfigError, match=r"OTEL_EXPORTER_OTLP_PROTOCOL='grpc': .*http/protobuf"):
        check_tracing(config)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    check_tracing(config)


@pytest.mark.parametrize("endpoint", ["", "localhost:4318", "grpc://localhost:4317", "http://", "http://a b"])
def test_what_is_no_address(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="otlp_traces_endpoint"):
        ServerConfig(otlp_traces_endpoint=endpoint)


def test_opentelemetry_is_imported_by_those_alone_who_want_it() -> None:
    program = (
        "import sys, octavo, octavo.server.app, octavo.cli.serve;"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"


def test_headers_of_clients_write_no_lines_into_the_log(server: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    bad = {"traceparent": "0" * 5000, "tracestate": "=,=;", "baggage": ",".join(["a line of their own"] * 100)}
    answer = httpx.post(f"{server.url}/v1/completions", json=BODY, headers=bad, timeout=30)
    assert answer.status_code == 200 and answer.headers["traceresponse"]
    assert not caplog.records
