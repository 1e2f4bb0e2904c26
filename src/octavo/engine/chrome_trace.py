"""A profile as a Chrome trace: the trace event format that Perfetto and chrome://tracing open.

core loop    | schedule 7 | update 5 | output |       | schedule 8 | ...
steps        | step 6                                 | step 7 ...
             | apply | build batch | forward | sample |
                                   | op | op |
requests     | chatcmpl-1: queued | prefill | decode ...
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

import octavo
from octavo.request.profile import OP_COLUMNS, OpInfo, Profile, ProfiledStep, ProfileEnd, RequestLife, Span, StepProfile

_encode = msgspec.json.encode

Event = tuple[float, float, bytes]
"""Begin and negative duration in microseconds, by which events are sorted: what holds others comes first; JSON."""


def chrome_trace(profile: Profile, model: str = "") -> bytes:
    """The trace as JSON; times begin with the profile."""
    writer = _Writer(profile)
    events = sorted(writer.events(), key=lambda event: event[:2])
    head = _encode({"displayTimeUnit": "ms", "otherData": describe(profile, model)})
    listed = b",\n".join([*writer.names(), *(text for _, _, text in events)])
    return b"".join((head[:-1], b',"traceEvents":[\n', listed, b"\n]}\n"))


def describe(profile: Profile, model: str = "") -> dict[str, Any]:
    """What the profile is, and what it lacks."""
    about: dict[str, Any] = {
        "octavo": octavo.__version__,
        "model": model,
        "began": datetime.fromtimestamp(profile.begin_unix_s, UTC).isoformat(timespec="milliseconds"),
        "seconds": round(profile.end_s - profile.begin_s, 6),
        "steps": len(profile.steps),
        "requests": len(profile.requests),
        "events": profile.num_events,
        "ended_by": profile.ended_by.value,
        "op_times": "timed inside the native program, by stage"
        if profile.programs
        else f"none: the executor {profile.executor!r} does not time its ops, so `forward` is known as a whole",
    }
    if profile.ended_by is ProfileEnd.FULL:
        about["cut"] = f"the profile was full with {profile.max_events} events; what came later is not in it"
    return about


class _Writer:
    """Events of one profile."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._pid = profile.process

    def events(self) -> Iterator[Event]:
        """All but names, in no order."""
        for span in self._profile.spans:
            yield self._span(span, self._profile.thread)
            if span.name in _FLOW:
                yield self._flow(_FLOW[span.name], span.args["step"], span, self._profile.thread)
        for step in self._profile.steps:
            yield from self._step(step)
        for request in self._profile.requests:
            yield from self._request(request)

    def names(self) -> Iterator[bytes]:
        """Of the process and its threads."""
        core = self._profile.thread
        others = sorted({step.ran.thread for step in self._profile.steps if step.ran is not None} - {core})
        yield self._name("process_name", 0, "octavo engine core")
        yield self._name("thread_name", core, "core loop" if others else "core loop and steps")
        for thread in others:
            yield self._name("thread_name", thread, "steps")

    def _name(self, kind: str, thread: int, name: str) -> bytes:
        return _encode({"ph": "M", "name": kind, "pid": self._pid, "tid": thread, "args": {"name": name}})

    def _us(self, seconds: float) -> float:
        """Microseconds since the profile began; what was there before begins with it."""
        return round(max(0.0, seconds - self._profile.begin_s) * 1e6, 3)

    def _span(self, span: Span, thread: int, name: str = "") -> Event:
        begin = self._us(span.begin_s)
        seconds = round(self._us(span.end_s) - begin, 3)
        event = {"ph": "X", "name": name or span.name, "cat": "core", "pid": self._pid, "tid": thread, "ts": begin}
        return begin, -seconds, _encode(event | {"dur": seconds, "args": span.args})

    def _flow(self, phase: str, step: int, span: Span, thread: int) -> Event:
        """Ties what was done for one step in different threads."""
        at = self._us(span.begin_s)
        end = {"bp": "e"} if phase == "f" else {}
        event = {"ph": phase, "name": "step", "cat": "step", "id": step, "pid": self._pid, "tid": thread, "ts": at}
        return at, 0.0, _encode(event | end)

    def _step(self, step: ProfiledStep) -> Iterator[Event]:
        ran = step.ran
        if ran is None or not ran.spans:
            return
        whole = Span("step", ran.spans[0].begin_s, ran.spans[-1].end_s, {"step": step.step} | step.args)
        yield self._span(whole, ran.thread, f"step {step.step}")
        yield self._flow("t", step.step, whole, ran.thread)
        yield self._counter(whole)
        for span in ran.spans:
            yield self._span(span, ran.thread)
        yield from self._ops(ran)

    def _counter(self, step: Span) -> Event:
        at = self._us(step.begin_s)
        values = {name: step.args[name] for name in ("requests", "tokens")}
        return at, 0.0, _encode({"ph": "C", "name": "batch", "pid": self._pid, "tid": 0, "ts": at, "args": values})

    def _ops(self, ran: StepProfile) -> Iterator[Event]:
        """By far the most events: what is the same in all of an op is encoded once."""
        begin_ns = round(self._profile.begin_s * 1e9)
        for program, table in ran.ops.items():
            heads = self._heads(program, ran.thread)
            for op, rows, began, ended, busy in _rows_of(table):
                at, lasted = (began - begin_ns) / 1e3, (ended - began) / 1e3
                times = f',"ts":{at:.3f},"dur":{lasted:.3f},"args":{{"rows":{rows},"busy_us":{busy / 1e3:.3f}'
                yield at, -lasted, heads[op][0] + times.encode() + heads[op][1]

    def _heads(self, program: str, thread: int) -> list[tuple[bytes, bytes]]:
        """Per op, what stands before its times and what behind them."""
        return [(self._head(op, program, thread), _tail(op)) for op in self._profile.programs[program]]

    def _head(self, op: OpInfo, program: str, thread: int) -> bytes:
        event = {"ph": "X", "name": op.name, "cat": f"op,{program}", "pid": self._pid, "tid": thread}
        return _encode(event)[:-1]

    def _request(self, request: RequestLife) -> Iterator[Event]:
        """Async events, one inside the other: the request, and its phases as far as it has come."""
        end_s = self._profile.end_s if request.end_s is None else request.end_s
        args: dict[str, object] = {**request.args, "state": request.state}
        if request.arrival_s < self._profile.begin_s:
            args["arrived_s_before"] = round(self._profile.begin_s - request.arrival_s, 6)
        marks = [request.arrival_s, request.first_scheduled_s, request.first_token_s]
        yield self._async("b", request.request_id, request, request.arrival_s, args)
        begins = [(name, at) for name, at in zip(_PHASES, marks, strict=True) if at is not None]
        ends = [at for _, at in begins[1:]] + [end_s]
        for (name, begin_s), phase_end_s in zip(begins, ends, strict=True):
            if phase_end_s > self._profile.begin_s:
                yield self._async("b", name, request, begin_s)
                yield self._async("e", name, request, phase_end_s)
        for preempted_s in request.preempted_s:
            if preempted_s > self._profile.begin_s:
                yield self._async("n", "preempted", request, preempted_s)
        yield self._async("e", request.request_id, request, end_s)

    def _async(
        self, phase: str, name: str, request: RequestLife, at_s: float, args: Mapping[str, object] | None = None
    ) -> Event:
        at = self._us(at_s)
        event = {"ph": phase, "name": name, "cat": "request", "id": request.request_id, "pid": self._pid, "tid": 0}
        return at, 0.0, _encode(event | {"ts": at, "args": args or {}})


_PHASES = ("queued", "prefill", "decode")
_FLOW = {"schedule": "s", "update": "f"}


def _tail(op: OpInfo) -> bytes:
    about: dict[str, Any] = {} if op.layer is None else {"layer": op.layer}
    if op.detail:
        about["detail"] = op.detail
    return b"," + _encode(about)[1:] + b"}" if about else b"}}"


def _rows_of(table: bytes) -> Iterable[tuple[int, ...]]:
    """The rows of a table of `OP_COLUMNS` columns."""
    values = memoryview(table).cast("q").tolist()
    return zip(*(values[column::OP_COLUMNS] for column in range(OP_COLUMNS)), strict=True)
