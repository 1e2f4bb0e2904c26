"""What a trace costs a request: processor time of the event loop's thread, and of the thread that sends.

    python benchmarks/tracing_cost.py [--requests 20000] [--choices 1]

The application under the middleware does nothing but note one finished request, so all that is measured is tracing:
opening the span, noting, and writing it with its events. The other thread encodes spans as it does for a collector;
the bytes go nowhere. Processor time, so other work on the machine does not count. Needs octavo[otel].
"""

import argparse
import asyncio
import time
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from starlette.types import Message, Receive, Scope, Send

from octavo.request.ledger import RequestLedger
from octavo.request.outputs import FinishReason, RequestStats
from octavo.request.params import SamplingParams
from octavo.server.tracing.middleware import TraceRequests
from octavo.server.tracing.request_trace import Asked, current_trace
from octavo.server.tracing.tracer import Tracer

CALLER = (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


class Discard(SpanExporter):
    """Encodes, and counts bytes."""

    num_spans = 0
    num_bytes = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.num_spans += len(spans)
        self.num_bytes += len(encode_spans(spans).SerializeToString())
        return SpanExportResult.SUCCESS


def application(choices: int) -> TraceRequests:
    stats = RequestStats(arrival_s=1, first_scheduled_s=2, first_token_s=3, finished_s=4, num_steps=100)
    asked = Asked(request_id="cmpl-0123456789abcdef", prompt_lens=[100], params=SamplingParams(n=choices))

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        trace = current_trace()
        trace.asks(asked)
        for choice in range(choices):
            trace.ended((0, choice), FinishReason.LENGTH, stats)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    return answer  # type: ignore[return-value]


async def measure(requests: int, choices: int, *, traced: bool) -> tuple[float, float, Discard]:
    """Seconds of processor time of this thread and of all others, for so many requests."""

    async def look(*_: str) -> RequestLedger | None:
        raise AssertionError("all is known")

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    async def send(_: Message) -> None:
        return

    exporter, provider = Discard(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=2**20))
    tracer = Tracer(provider, look=look, clock=time.monotonic, wall_clock=time.time, model="model")
    app = application(choices)
    stack = TraceRequests(app, tracer) if traced else app
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": [CALLER]}
    thread_s, process_s = time.thread_time(), time.process_time()
    for _ in range(requests):
        await stack(dict(scope), receive, send)
    own_s = time.thread_time() - thread_s
    await tracer.close()
    return own_s, time.process_time() - process_s - own_s, exporter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--choices", type=int, default=1)
    given = parser.parse_args()
    asyncio.run(measure(given.requests // 10, given.choices, traced=True))
    bare_s, _, _ = asyncio.run(measure(given.requests, given.choices, traced=False))
    own_s, other_s, exporter = asyncio.run(measure(given.requests, given.choices, traced=True))
    spans = exporter.num_spans
    size = exporter.num_bytes / spans
    print(f"{given.requests} requests of {given.choices} choices, {spans} spans of {size:.0f} bytes")
    print(f"event loop {(own_s - bare_s) / given.requests * 1e6:.0f} us a request")
    print(f"sender     {other_s / given.requests * 1e6:.0f} us a request")


if __name__ == "__main__":
    main()
