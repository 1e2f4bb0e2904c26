"""The spans of requests: opened under the context that the caller sent, ended with what became known meanwhile.

Whatever goes wrong here is logged and costs the span, never the request.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from opentelemetry import propagate
from opentelemetry.propagators.textmap import Getter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context

import octavo
from octavo.errors import EngineDeadError
from octavo.request.ledger import RequestLedger
from octavo.server.access_log import RequestFigures
from octavo.server.tracing.attributes import (
    Attributes,
    asked_attributes,
    first_attributes,
    ledger_attributes,
    usage_attributes,
)
from octavo.server.tracing.moments import Moment, moments_of, phases_of
from octavo.server.tracing.request_trace import RequestTrace, TracedSequence

log = logging.getLogger(__name__)

Headers = Sequence[tuple[bytes, bytes]]
Look = Callable[[str, str], Awaitable[RequestLedger | None]]
"""(request id, tenant) -> what the engine core knows of it."""

LOOK_S = 10.0
"""How long the core may take to tell what became of a request: it may be in a long step."""
FLUSH_S = 5.0
"""How long the collector may take to receive the last spans when the server stops."""
MAX_SEQUENCE_SPANS = 128
"""Most sequences of one request that get spans of their own: a list of 2,000 inputs is one job, not 2,000."""


@dataclass(frozen=True)
class RequestSpan:
    """The open span of a request that is recorded."""

    span: Span
    begin_s: float
    """On the server's clock."""
    base_ns: int
    """Unix time less that clock, as of its beginning: if the wall clock is set meanwhile, the span keeps its length."""

    @property
    def header(self) -> bytes:
        """Its name, as `traceparent` has it."""
        context = self.span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}".encode()

    def at_ns(self, moment_s: float) -> int:
        """Unix time in nanoseconds of a moment of the server's clock, which is the engine core's."""
        return self.base_ns + _ns(moment_s)


class Tracer:
    """Makes spans of requests. Lives in the event loop that serves."""

    def __init__(
        self,
        provider: TracerProvider,
        *,
        give_up: Callable[[], None] | None = None,
        look: Look,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        model: str,
    ) -> None:
        """
        Args:
            provider: samples, and sends in a thread of its own. Closed with this.
            give_up: has it send no more, when closing takes too long.
            look: asked for what did not come with a request's outputs, after its answer has left.
        """
        self._provider = provider
        self._give_up = give_up
        self._tracer = provider.get_tracer("octavo", octavo.__version__)
        self._look = look
        self._clock = clock
        self._wall_clock = wall_clock
        self._model = model
        self._looking: set[asyncio.Task[None]] = set()

    def open(self, path: str, headers: Headers) -> RequestSpan | None:
        """The span of a request that has just come; None if it is not sampled."""
        try:
            return self._open(path, headers)
        except Exception as error:
            log.error("a request goes untraced", exc_info=error)
            return None

    def _open(self, path: str, headers: Headers) -> RequestSpan | None:
        begin_s = self._clock()
        base_ns = _ns(self._wall_clock()) - _ns(begin_s)
        attributes = first_attributes(path, self._model)
        span = self._tracer.start_span(
            f"{attributes['gen_ai.operation.name']} {self._model}",
            context=propagate.extract(headers, getter=_HEADERS),
            kind=SpanKind.SERVER,
            attributes=attributes,
            start_time=base_ns + _ns(begin_s),
        )
        return RequestSpan(span, begin_s, base_ns) if span.is_recording() else None

    def finish(self, span: RequestSpan, trace: RequestTrace, figures: RequestFigures) -> None:
        """Ends the span as of now, at once or as soon as the engine core has told what is missing."""
        end_s = self._clock()
        name = trace.lacks
        if name is None:
            self._write(span, trace, figures, end_s)
            return
        task = asyncio.ensure_future(self._look_and_write(name, span, trace, figures, end_s))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _look_and_write(
        self, name: str, span: RequestSpan, trace: RequestTrace, figures: RequestFigures, end_s: float
    ) -> None:
        try:
            async with asyncio.timeout(LOOK_S):
                ledger = await self._look(name, trace.tenant)
            if ledger is not None:
                trace.complete(ledger)
        except (EngineDeadError, TimeoutError) as error:
            log.info("the span of request %s lacks what only the engine knows: %r", name, error)
        finally:
            self._write(span, trace, figures, end_s)

    def _write(self, span: RequestSpan, trace: RequestTrace, figures: RequestFigures, end_s: float) -> None:
        try:
            self._describe(span, trace, figures)
        except Exception as error:
            log.error("a span is not whole", exc_info=error)
        finally:
            span.span.end(span.at_ns(end_s))

    def _describe(self, span: RequestSpan, trace: RequestTrace, figures: RequestFigures) -> None:
        sequences = trace.sequences()
        stats = [one.stats for one in sequences if one.stats is not None]
        phases = phases_of(stats)
        about = _http_attributes(trace)
        if trace.asked is not None:
            about |= asked_attributes(trace.asked) | usage_attributes(trace.asked, figures, sequences)
        if phases is not None:
            about |= ledger_attributes(stats) | phases.latencies(span.begin_s)
            alone = len(sequences) == 1
            _add_events(span.span, span, moments_of(stats[0], sequences[0].reason) if alone else phases.moments())
            if not alone and len(sequences) <= MAX_SEQUENCE_SPANS:
                self._add_sequences(span, sequences)
        span.span.set_attributes(about)
        if trace.problem is not None:
            span.span.set_status(Status(StatusCode.ERROR, trace.problem))

    def _add_sequences(self, span: RequestSpan, sequences: Iterable[TracedSequence]) -> None:
        """A span below the request's for each sequence that has reached the core."""
        parent = set_span_in_context(span.span)
        for index, sequence in enumerate(sequences):
            stats = sequence.stats
            if stats is None:
                continue
            moments = moments_of(stats, sequence.reason)
            about: Attributes = {
                "octavo.sequence": index,
                "gen_ai.usage.input_tokens": stats.num_prompt_tokens,
                "gen_ai.usage.output_tokens": stats.num_output_tokens,
                "gen_ai.usage.cache_read.input_tokens": stats.num_cached_tokens,
                "gen_ai.response.finish_reasons": [str(sequence.reason)],
                **ledger_attributes([stats]),
            }
            begin_ns = span.at_ns(stats.arrival_s)
            child = self._tracer.start_span(
                f"sequence {index}", context=parent, kind=SpanKind.INTERNAL, attributes=about, start_time=begin_ns
            )
            _add_events(child, span, moments)
            child.end(span.at_ns(moments[-1].at_s))

    async def close(self) -> None:
        """Ends what is open and sends what is left, for a few seconds at most; what a collector does not take in that
        time is lost."""
        if self._looking:
            await asyncio.wait(self._looking, timeout=LOOK_S)
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        # A thread that a program's end does not wait for, as it does for those of an executor.
        threading.Thread(target=_shut_down, args=(self._provider, loop, done), daemon=True).start()
        try:
            async with asyncio.timeout(FLUSH_S):
                await done.wait()
        except TimeoutError:
            if self._give_up is not None:
                self._give_up()
            log.warning("the last traces are lost: the collector has not taken them within %g s", FLUSH_S)


def _shut_down(provider: TracerProvider, loop: asyncio.AbstractEventLoop, done: asyncio.Event) -> None:
    provider.shutdown()
    try:
        loop.call_soon_threadsafe(done.set)
    except RuntimeError:  # nobody waits any more
        log.debug("the collector took the last traces too late to be waited for")


def _http_attributes(trace: RequestTrace) -> Attributes:
    about: Attributes = {"gen_ai.request.stream": trace.streams}
    if trace.status is not None:
        about["http.response.status_code"] = trace.status
    if trace.error_type is not None:
        about["error.type"] = trace.error_type
    return about


def _add_events(target: Span, span: RequestSpan, moments: Iterable[Moment]) -> None:
    for moment in moments:
        target.add_event(moment.name, dict(moment.attributes), span.at_ns(moment.at_s))


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


class _HeaderGetter(Getter[Headers]):
    """Reads ASGI's headers for a propagator."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        """All values of a header. One that may stand once and stands twice is none (Trace Context, 3.2)."""
        name = key.encode()
        values = [value.decode("latin-1") for header, value in carrier if header == name]
        return None if not values or (len(values) > 1 and key == "traceparent") else values

    def keys(self, carrier: Headers) -> list[str]:
        """The headers' names."""
        return [name.decode("latin-1") for name, _ in carrier]


_HEADERS = _HeaderGetter()
