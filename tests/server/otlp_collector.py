"""A collector of traces: a real HTTP server on loopback that decodes what OpenTelemetry's protocol sends."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.server.conftest import wait_until

SERVER_KIND, INTERNAL_KIND = Span.SPAN_KIND_SERVER, Span.SPAN_KIND_INTERNAL


@dataclass(frozen=True)
class Event:
    """An event of a span."""

    name: str
    at_ns: int
    attributes: dict[str, Any]


@dataclass(frozen=True)
class CollectedSpan:
    """A span as it was sent."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    trace_state: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: list[Event]
    failed: bool
    problem: str
    resource: dict[str, Any] = field(repr=False)

    @property
    def story(self) -> list[str]:
        """Names of its events."""
        return [event.name for event in self.events]

    def at_ns(self, name: str) -> int:
        """When its one event of a name was."""
        (event,) = [event for event in self.events if event.name == name]
        return event.at_ns


class Collector:
    """What was sent, and how to answer."""

    def __init__(self) -> None:
        self.spans: list[CollectedSpan] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        """Path and headers of each."""
        self.status = 200
        self.open = threading.Event()
        """Requests are answered while it is set."""
        self.open.set()
        self.url = ""

    def requests_spans(self) -> list[CollectedSpan]:
        """Those of requests, without those of their sequences."""
        return [span for span in self.spans if span.kind == SERVER_KIND]

    def wait(self, count: int) -> list[CollectedSpan]:
        """The spans of requests, as soon as there are so many; fails if there are more."""
        wait_until(lambda: len(self.requests_spans()) >= count, f"{count} spans")
        assert len(self.requests_spans()) == count
        return self.requests_spans()

    def children_of(self, span: CollectedSpan) -> list[CollectedSpan]:
        """In the order of their names' numbers."""
        found = [one for one in self.spans if one.parent_id == span.span_id]
        return sorted(found, key=lambda one: int(one.attributes["octavo.sequence"]))

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """Keeps what a request brings; returns the status of its answer."""
        self.open.wait(60)
        self.requests.append((path, headers))
        if self.status == 200:
            sent = ExportTraceServiceRequest.FromString(
                gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
            )
            for group in sent.resource_spans:
                resource = _attributes(group.resource.attributes)
                for scope in group.scope_spans:
                    self.spans += [_collected(span, resource) for span in scope.spans]
        return self.status


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens as long as the block runs."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = collector.take(self.path, headers, body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        collector.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield collector
        finally:
            collector.open.set()
            http.shutdown()
            thread.join()


def _collected(span: Span, resource: dict[str, Any]) -> CollectedSpan:
    return CollectedSpan(
        name=span.name,
        kind=span.kind,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        trace_state=span.trace_state,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        events=[Event(event.name, event.time_unix_nano, _attributes(event.attributes)) for event in span.events],
        failed=span.status.code == Status.STATUS_CODE_ERROR,
        problem=span.status.message,
        resource=resource,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs if isinstance(pair, KeyValue)}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, str(kind))
