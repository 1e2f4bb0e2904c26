"""Spans as they are made, with clocks of our own and an exporter that keeps them."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from octavo.errors import EngineDeadError
from octavo.request.ledger import ChoiceLedger, RequestLedger
from octavo.request.outputs import FinishReason, RequestStats
from octavo.request.params import SamplingParams
from octavo.server.access_log import RequestFigures
from octavo.server.tracing.moments import moments_of, phases_of
from octavo.server.tracing.request_trace import Asked, RequestTrace
from octavo.server.tracing.tracer import MAX_SEQUENCE_SPANS, Tracer

BEGIN_NS = 1_800_000_000 * 10**9
STATS = RequestStats(
    arrival_s=10.5,
    first_scheduled_s=11.0,
    first_token_s=12.25,
    preempted_s=[11.5, 13.0],
    num_preemptions=2,
    finished_s=14.0,
    num_prompt_tokens=3,
    num_output_tokens=2,
)


class Desk:
    """A tracer with clocks that stand until they are moved, and an engine core that tells what it is told to."""

    def __init__(self) -> None:
        self.clock_s = 10.0
        self.wall_s = BEGIN_NS / 1e9
        self.ledger: RequestLedger | None = None
        self.asked: list[tuple[str, str]] = []
        self.dead = False
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = Tracer(
            provider, look=self.look, clock=lambda: self.clock_s, wall_clock=lambda: self.wall_s, model="m"
        )

    async def look(self, request_id: str, tenant: str) -> RequestLedger | None:
        self.asked.append((request_id, tenant))
        if self.dead:
            raise EngineDeadError("gone")
        return self.ledger

    async def run(self, trace: RequestTrace, end_s: float = 15.0) -> list[ReadableSpan]:
        """The spans of a request that was noted so; the last is its own."""
        span = self.tracer.open("/v1/completions", [])
        assert span is not None
        self.clock_s = end_s
        self.tracer.finish(span, trace, RequestFigures())
        await self.tracer.close()
        return list(self._exporter.get_finished_spans())


def noted(*stats: RequestStats | None, n: int | None = None) -> RequestTrace:
    """A request of one prompt whose choices have ended so; None: without telling."""
    trace = RequestTrace(tenant="t")
    trace.asks(Asked(request_id="r", prompt_lens=[3], params=SamplingParams(n=n or len(stats))))
    for index, one in enumerate(stats):
        trace.ended((0, index), FinishReason.STOP, one)
    return trace


def times(span: ReadableSpan) -> list[tuple[str, float]]:
    """Its events, in seconds since the beginning of the request."""
    return [(event.name, (event.timestamp - BEGIN_NS) / 1e9) for event in span.events]


STORY = [
    ("queued", 0.5),
    ("scheduled", 1.0),
    ("preempted", 1.5),
    ("first_token", 2.25),
    ("preempted", 3.0),
    ("finished", 4.0),
]


def test_events_stand_where_the_core_saw_them() -> None:
    desk = Desk()
    (span,) = asyncio.run(desk.run(noted(STATS)))
    assert times(span) == STORY
    assert (span.start_time, span.end_time) == (BEGIN_NS, BEGIN_NS + 5 * 10**9)
    assert desk.asked == []  # all that is to be known came with the outputs
    assert span.attributes is not None and span.attributes["octavo.preemptions"] == 2


def test_a_wall_clock_that_is_set_meanwhile_moves_nothing() -> None:
    async def run() -> list[ReadableSpan]:
        desk = Desk()
        trace = noted(None)
        desk.ledger = RequestLedger(
            request_id="r",
            now_s=15.0,
            choices=[ChoiceLedger(request_id="r", state="finished", finish_reason=FinishReason.STOP, stats=STATS)],
        )
        span = desk.tracer.open("/v1/completions", [])
        assert span is not None
        desk.wall_s, desk.clock_s = desk.wall_s - 3600, 15.0
        desk.tracer.finish(span, trace, RequestFigures())
        await desk.tracer.close()
        return list(desk._exporter.get_finished_spans())

    (span,) = asyncio.run(run())
    assert times(span) == STORY and span.end_time == BEGIN_NS + 5 * 10**9


def test_what_did_not_come_with_outputs_is_asked_for() -> None:
    desk = Desk()
    trace = noted(None, n=2)
    late = ChoiceLedger(request_id="r-1", state="finished", finish_reason=FinishReason.ABORT, stats=STATS)
    early = ChoiceLedger(request_id="r-0", state="finished", finish_reason=FinishReason.STOP, stats=STATS)
    desk.ledger = RequestLedger(request_id="r", now_s=15.0, choices=[early, late])
    first, second, whole = asyncio.run(desk.run(trace))
    assert desk.asked == [("r", "t")]
    assert times(first) == times(second) == STORY
    assert [name for name, _ in times(whole)] == ["queued", "scheduled", "first_token", "finished"]
    assert whole.attributes is not None
    assert whole.attributes["gen_ai.response.finish_reasons"] == ("stop", "abort")


def test_an_end_is_what_the_client_was_told() -> None:
    """A stop string had ended it before the core came to the limit, and heard of that."""
    desk = Desk()
    core = ChoiceLedger(request_id="r", state="finished", finish_reason=FinishReason.LENGTH, stats=STATS)
    desk.ledger = RequestLedger(request_id="r", now_s=15.0, choices=[core])
    (span,) = asyncio.run(desk.run(noted(None)))
    assert span.attributes is not None and span.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert times(span) == STORY


@pytest.mark.parametrize("dead", [True, False])
def test_what_nobody_knows_is_left_out(dead: bool) -> None:
    desk = Desk()
    desk.dead = dead
    trace = noted(n=1)
    trace.others_ended(FinishReason.ERROR)
    (span,) = asyncio.run(desk.run(trace))
    assert span.events == () and span.attributes is not None
    assert span.attributes["gen_ai.response.finish_reasons"] == ("error",)
    assert span.end_time == BEGIN_NS + 5 * 10**9  # as of the answer's end, not of the asking's


def test_a_sequence_that_still_runs_has_no_end() -> None:
    desk = Desk()
    running = RequestStats(arrival_s=10.5, first_scheduled_s=11.0)
    desk.ledger = RequestLedger(
        request_id="r", now_s=15.0, choices=[ChoiceLedger(request_id="r", state="running", stats=running)]
    )
    (span,) = asyncio.run(desk.run(noted(n=1)))
    assert times(span) == [("queued", 0.5), ("scheduled", 1.0)]
    assert span.attributes is not None and "gen_ai.latency.e2e" not in span.attributes
    assert span.attributes["gen_ai.response.finish_reasons"] == ("abort",)


def job(num_prompts: int) -> RequestTrace:
    """Vectors of so many prompts."""
    trace = RequestTrace()
    trace.asks(Asked(request_id="r", prompt_lens=[3] * num_prompts))
    for prompt in range(num_prompts):
        trace.ended((prompt, 0), FinishReason.STOP, STATS)
    return trace


def test_a_job_of_many_sequences_is_one_span() -> None:
    assert len(asyncio.run(Desk().run(job(MAX_SEQUENCE_SPANS)))) == 1 + MAX_SEQUENCE_SPANS
    (span,) = asyncio.run(Desk().run(job(MAX_SEQUENCE_SPANS + 1)))
    assert [name for name, _ in times(span)] == ["queued", "scheduled", "first_token", "finished"]
    assert span.attributes is not None and span.attributes["gen_ai.usage.num_sequences"] == MAX_SEQUENCE_SPANS + 1


seconds = st.floats(0, 1e6, allow_nan=False)


@given(st.lists(seconds, min_size=4, max_size=4), st.lists(seconds, max_size=3), st.integers(1, 4))
def test_moments_follow_each_other(phases: Sequence[float], preempted: list[float], known: int) -> None:
    arrival, scheduled, first, finished = [*sorted(phases)[:known], *[None] * (4 - known)]
    assert arrival is not None
    stats = RequestStats(
        arrival_s=arrival,
        first_scheduled_s=scheduled,
        first_token_s=first,
        finished_s=finished,
        preempted_s=preempted,
    )
    moments = moments_of(stats, FinishReason.STOP)
    assert len(moments) == known + len(preempted)
    assert [moment.at_s for moment in moments] == sorted(moment.at_s for moment in moments)
    order = ["queued", "scheduled", "first_token", "finished"]
    assert [moment.name for moment in moments if moment.name != "preempted"] == order[:known]


@given(st.lists(st.lists(seconds, min_size=4, max_size=4).map(sorted), min_size=1, max_size=5), seconds)
def test_phases_add_up(times: list[list[float]], before: float) -> None:
    stats = [
        RequestStats(arrival_s=one[0], first_scheduled_s=one[1], first_token_s=one[2], finished_s=one[3])
        for one in times
    ]
    phases = phases_of(stats)
    assert phases is not None
    begin = phases.queued_s - before
    took = {name.removeprefix("gen_ai.latency."): value for name, value in phases.latencies(begin).items()}
    assert all(value >= 0 for value in took.values())
    close = pytest.approx
    assert took["time_in_model_prefill"] + took["time_in_model_decode"] == close(took["time_in_model_inference"])
    assert took["time_to_first_token"] + took["time_in_model_decode"] == close(took["e2e"])
    waited = phases.queued_s - begin + took["time_in_queue"] + took["time_in_model_prefill"]
    assert waited == close(took["time_to_first_token"])
