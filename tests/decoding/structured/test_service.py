"""The compilation service: one compilation for equal specs, events for all who wait, bounds on time and memory."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from octavo.decoding.structured.backend import CompiledGrammar, Matcher
from octavo.decoding.structured.service import MAX_STUCK, GrammarEvent, GrammarService
from octavo.errors import InvalidRequestError
from octavo.request.structured import StructuredKind, StructuredSpec
from tests.decoding.structured.walks import BACKEND, accepts


@dataclass
class Grammar:
    """A stand-in."""

    num_bytes: int

    def matcher(self, end_token_ids: tuple[int, ...]) -> Matcher:
        raise NotImplementedError


@dataclass
class Backend:
    """Compiles when it is told to; the source of a spec says what comes of it: a size, or `wrong`, or `broken`."""

    compiled: list[str] = field(default_factory=list)
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(1000))
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    prepared: threading.Event = field(default_factory=threading.Event)

    def prepare(self) -> None:
        self.prepared.set()

    def compile(self, spec: StructuredSpec) -> CompiledGrammar:
        self.begun.release()
        self.gate.acquire()
        self.compiled.append(spec.source)
        if spec.source == "wrong":
            raise InvalidRequestError(spec.field, spec.source, "no good")
        if spec.source == "broken":
            raise RuntimeError("a mistake")
        return Grammar(int(spec.source))


def spec(source: str, field_name: str = "structured_outputs") -> StructuredSpec:
    return StructuredSpec(kind=StructuredKind.REGEX, source=source, field=field_name)


class Desk:
    """A service, and waiting for its events."""

    def __init__(self, backend: Backend, **settings: float) -> None:
        self._news = threading.Semaphore(0)
        self.service = GrammarService(backend, self._news.release, **settings)  # type: ignore[arg-type]

    def next_events(self, now_s: float = 0.0) -> list[GrammarEvent]:
        assert self._news.acquire(timeout=20)
        return self.service.poll(now_s)


@pytest.fixture
def make_desk() -> Iterator[Callable[..., Desk]]:
    desks: list[Desk] = []

    def make(backend: Backend, **settings: float) -> Desk:
        desks.append(Desk(backend, **settings))
        return desks[-1]

    yield make
    for desk in desks:
        desk.service.close()


MakeDesk = Callable[..., Desk]


def test_equal_specs_are_compiled_once(make_desk: MakeDesk) -> None:
    backend = Backend(gate=threading.Semaphore(0))
    desk = make_desk(backend)
    for number in range(5):
        assert desk.service.request(number, spec("10", f"field{number}"), 0.0) is None
    assert len(desk.service) == 5
    backend.gate.release()
    events = desk.next_events()
    assert [event.ticket for event in events] == list(range(5))
    assert len({id(event.grammar) for event in events}) == 1
    assert len(desk.service) == 0
    at_once = desk.service.request(9, spec("10"), 0.0)
    assert at_once == GrammarEvent(9, events[0].grammar)
    assert backend.compiled == ["10"]


def test_errors_are_data_with_the_field_of_whoever_asked(make_desk: MakeDesk) -> None:
    backend = Backend()
    desk = make_desk(backend)
    desk.service.request(0, spec("wrong", "response_format"), 0.0)
    (event,) = desk.next_events()
    assert event.grammar is None
    assert str(event.error) == "response_format='wrong': no good"
    again = desk.service.request(1, spec("wrong", "tools"), 0.0)
    assert again is not None
    assert str(again.error) == "tools='wrong': no good"
    assert backend.compiled == ["wrong"]


def test_a_mistake_of_the_backend_ends_one_request(make_desk: MakeDesk, caplog: pytest.LogCaptureFixture) -> None:
    desk = make_desk(Backend(), num_threads=1)
    desk.service.request(0, spec("broken"), 0.0)
    (event,) = desk.next_events()
    assert "could not be compiled: RuntimeError" in str(event.error)
    assert "kind regex" in caplog.text
    desk.service.request(1, spec("1"), 0.0)
    assert desk.next_events()[0].grammar is not None


def test_whoever_does_not_wait_any_more_hears_nothing(make_desk: MakeDesk) -> None:
    backend = Backend(gate=threading.Semaphore(0))
    desk = make_desk(backend, num_threads=1)
    desk.service.request(0, spec("1"), 0.0)
    desk.service.request(1, spec("1"), 0.0)
    desk.service.request(2, spec("2"), 0.0)
    desk.service.cancel(0)
    desk.service.cancel(2)
    desk.service.cancel(99)
    backend.gate.release()
    assert [event.ticket for event in desk.next_events()] == [1]
    desk.service.request(3, spec("3"), 0.0)
    backend.gate.release()
    assert [event.ticket for event in desk.next_events()] == [3]
    assert "2" not in backend.compiled, "nobody waited for it before it began"


def test_a_compilation_that_takes_too_long(make_desk: MakeDesk) -> None:
    backend = Backend(gate=threading.Semaphore(0))
    desk = make_desk(backend, timeout_s=5.0)
    assert desk.service.deadline_s() is None
    desk.service.request(0, spec("7"), 100.0)
    assert backend.begun.acquire(timeout=20)
    assert desk.service.deadline_s() == 105.0
    assert desk.service.poll(104.9) == []
    (event,) = desk.service.poll(105.0)
    assert "took more than 5 s" in str(event.error)
    assert len(desk.service) == 0
    assert desk.service.deadline_s() is None
    assert desk.service.poll(200.0) == []
    backend.gate.release()
    assert desk.next_events(201.0) == []
    late = desk.service.request(1, spec("7"), 201.0)
    assert late is not None
    assert late.grammar is not None


def test_threads_that_are_stuck_are_replaced_up_to_a_number_and_end_when_they_come_back(make_desk: MakeDesk) -> None:
    backend = Backend(gate=threading.Semaphore(0))
    desk = make_desk(backend, timeout_s=5.0, num_threads=1)
    before = set(threading.enumerate())
    for number in range(MAX_STUCK + 1):  # each gets the one thread that is not stuck, the last one for good
        desk.service.request(number, spec(str(number)), 10.0 * number)
        assert backend.begun.acquire(timeout=20)
        (event,) = desk.service.poll(10.0 * number + 5.0)
        assert "took more than 5 s" in str(event.error)
    own = set(threading.enumerate()) - before
    assert len(own) == 1 + MAX_STUCK
    desk.service.request(50, spec("50"), 100.0)
    (event,) = desk.service.poll(105.0)
    assert "was not compiled within 5 s, since others were" in str(event.error)
    for _ in range(MAX_STUCK + 1):
        backend.gate.release()
        assert desk.next_events(110.0) == []
    desk.service.request(51, spec("51"), 120.0)
    backend.gate.release()
    assert [event.ticket for event in desk.next_events(121.0)] == [51]
    assert backend.compiled == ["0", "1", "2", "3", "4", "51"]
    desk.service.close()
    for thread in own:
        thread.join(20)
        assert not thread.is_alive()


def test_preparing_is_done_in_a_thread_and_tells_nobody(make_desk: MakeDesk) -> None:
    backend = Backend()
    desk = make_desk(backend)
    desk.service.prepare()
    assert backend.prepared.wait(20)
    assert desk.service.poll(0.0) == []


def test_the_least_recently_used_goes_first(make_desk: MakeDesk) -> None:
    backend = Backend()
    desk = make_desk(backend, max_bytes=100)

    def ask(source: str) -> bool:
        """Whether it was known."""
        if desk.service.request(0, spec(source), 0.0) is not None:
            return True
        assert len(desk.next_events()) == 1
        return False

    assert [ask(source) for source in ("40", "50", "40")] == [False, False, True]
    assert not ask("20")
    assert ask("40")
    assert not ask("50"), "it had to go"
    assert not ask("101"), "larger than all room: used, not kept"
    assert not ask("101")


def test_the_number_of_entries_is_bounded(make_desk: MakeDesk) -> None:
    backend = Backend()
    desk = make_desk(backend, max_entries=2)
    for source in ("1", "2", "3", "1"):
        assert desk.service.request(0, spec(source), 0.0) is None
        desk.next_events()
    assert backend.compiled == ["1", "2", "3", "1"]


def test_forgetting(make_desk: MakeDesk) -> None:
    backend = Backend()
    desk = make_desk(backend)
    desk.service.request(0, spec("1"), 0.0)
    desk.next_events()
    desk.service.forget(spec("1"))
    assert desk.service.request(1, spec("1"), 0.0) is None
    desk.next_events()
    assert backend.compiled == ["1", "1"]


def test_a_service_that_is_forgotten_ends_its_threads() -> None:
    before = set(threading.enumerate())
    service = GrammarService(Backend(), lambda: None)
    assert set(threading.enumerate()) == before, "they begin when they are needed"
    service.prepare()
    threads = set(threading.enumerate()) - before
    assert len(threads) == 2
    gone = weakref.ref(service)
    del service
    gc.collect()
    assert gone() is None
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_with_the_real_backend(make_desk: MakeDesk) -> None:
    desk = make_desk(BACKEND)  # type: ignore[arg-type]
    assert desk.service.request(0, spec("[0-9]+ (a|b)"), 0.0) is None
    (event,) = desk.next_events()
    assert event.grammar is not None
    assert accepts(event.grammar.matcher(()), "12 b")
    assert desk.service.request(1, spec(r"\b"), 0.0) is None
    (event,) = desk.next_events()
    assert "not supported" in str(event.error)
