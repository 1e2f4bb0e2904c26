"""The compilation service: one compilation for equal specs, events for all who wait, bounds on time and memory."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from octavo.decoding.structured.backend import CompiledGrammar, Matcher
from octavo.decoding.structured.service import GrammarEvent, GrammarService
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

    def prepare(self) -> None:
        """Nothing."""

    def compile(self, spec: StructuredSpec) -> CompiledGrammar:
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
        assert desk.service.request(f"r{number}", spec("10", f"field{number}"), 0.0) is None
    assert len(desk.service) == 5
    backend.gate.release()
    events = desk.next_events()
    assert [event.request_id for event in events] == [f"r{number}" for number in range(5)]
    assert len({id(event.grammar) for event in events}) == 1
    assert len(desk.service) == 0
    at_once = desk.service.request("late", spec("10"), 0.0)
    assert at_once == GrammarEvent("late", events[0].grammar)
    assert backend.compiled == ["10"]


def test_errors_are_data_with_the_field_of_whoever_asked(make_desk: MakeDesk) -> None:
    backend = Backend()
    desk = make_desk(backend)
    desk.service.request("a", spec("wrong", "response_format"), 0.0)
    (event,) = desk.next_events()
    assert event.grammar is None
    assert str(event.error) == "response_format='wrong': no good"
    again = desk.service.request("b", spec("wrong", "tools"), 0.0)
    assert again is not None
    assert str(again.error) == "tools='wrong': no good"
    assert backend.compiled == ["wrong"]


def test_a_mistake_of_the_backend_ends_one_request(make_desk: MakeDesk, caplog: pytest.LogCaptureFixture) -> None:
    desk = make_desk(Backend(), num_threads=1)
    desk.service.request("a", spec("broken"), 0.0)
    (event,) = desk.next_events()
    assert "could not be compiled: RuntimeError" in str(event.error)
    assert "kind regex" in caplog.text
    desk.service.request("b", spec("1"), 0.0)
    assert desk.next_events()[0].grammar is not None


def test_whoever_does_not_wait_any_more_hears_nothing(make_desk: MakeDesk) -> None:
    backend = Backend(gate=threading.Semaphore(0))
    desk = make_desk(backend, num_threads=1)
    desk.service.request("a", spec("1"), 0.0)
    desk.service.request("b", spec("1"), 0.0)
    desk.service.request("c", spec("2"), 0.0)
    desk.service.cancel("a")
    desk.service.cancel("c")
    desk.service.cancel("never heard of")
    backend.gate.release()
    assert [event.request_id for event in desk.next_events()] == ["b"]
    desk.service.request("d", spec("3"), 0.0)
    backend.gate.release()
    assert [event.request_id for event in desk.next_events()] == ["d"]
    assert "2" not in backend.compiled, "nobody waited for it before it began"


def test_a_compilation_that_takes_too_long(make_desk: MakeDesk) -> None:
    backend = Backend(gate=threading.Semaphore(0))
    desk = make_desk(backend, timeout_s=5.0)
    desk.service.request("a", spec("7"), 100.0)
    assert desk.service.poll(104.9) == []
    (event,) = desk.service.poll(105.0)
    assert "took more than 5 s" in str(event.error)
    assert len(desk.service) == 0
    assert desk.service.poll(200.0) == []
    backend.gate.release()
    assert desk.next_events(201.0) == []
    late = desk.service.request("b", spec("7"), 201.0)
    assert late is not None
    assert late.grammar is not None


def test_the_least_recently_used_goes_first(make_desk: MakeDesk) -> None:
    backend = Backend()
    desk = make_desk(backend, max_bytes=100)

    def ask(source: str) -> bool:
        """Whether it was known."""
        if desk.service.request("r", spec(source), 0.0) is not None:
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
        assert desk.service.request("r", spec(source), 0.0) is None
        desk.next_events()
    assert backend.compiled == ["1", "2", "3", "1"]


def test_forgetting(make_desk: MakeDesk) -> None:
    backend = Backend()
    desk = make_desk(backend)
    desk.service.request("a", spec("1"), 0.0)
    desk.next_events()
    desk.service.forget(spec("1"))
    assert desk.service.request("b", spec("1"), 0.0) is None
    desk.next_events()
    assert backend.compiled == ["1", "1"]


def test_a_service_that_is_forgotten_ends_its_threads() -> None:
    before = set(threading.enumerate())
    service = GrammarService(Backend(), lambda: None)
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
    assert desk.service.request("a", spec("[0-9]+ (a|b)"), 0.0) is None
    (event,) = desk.next_events()
    assert event.grammar is not None
    assert accepts(event.grammar.matcher(()), "12 b")
    assert desk.service.request("b", spec(r"\b"), 0.0) is None
    (event,) = desk.next_events()
    assert "not supported" in str(event.error)
