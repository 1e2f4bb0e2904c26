"""Compiles grammars beside the thread that asks, and remembers them."""

import logging
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from octavo.decoding.structured.backend import CompiledGrammar, GrammarBackend
from octavo.errors import InvalidRequestError
from octavo.request.structured import StructuredSpec

log = logging.getLogger(__name__)

MAX_CACHED_BYTES = 256 << 20
MAX_CACHED = 1024
COMPILE_TIMEOUT_S = 30.0
NUM_THREADS = 2
"""So that a large schema does not hold up a small one."""
MAX_STUCK = 4
"""Threads that may be stuck in compilations which took too long and have been replaced. Nothing can end a compilation:
with so many, and all others stuck as well, nothing more is compiled until one of them comes back."""


@dataclass(frozen=True)
class GrammarEvent:
    """What became of a grammar that a request waits for: one of the two."""

    ticket: int
    grammar: CompiledGrammar | None
    error: InvalidRequestError | None = None


@dataclass(frozen=True)
class _Outcome:
    """Of one compilation, for everybody who asks for the same."""

    grammar: CompiledGrammar | None
    value: object = None
    problem: str = ""

    def event(self, ticket: int, field: str) -> GrammarEvent:
        if self.grammar is not None:
            return GrammarEvent(ticket, self.grammar)
        return GrammarEvent(ticket, None, InvalidRequestError(field, self.value, self.problem))

    @property
    def num_bytes(self) -> int:
        return 1000 + len(self.problem) if self.grammar is None else self.grammar.num_bytes


@dataclass
class _Job:
    """A compilation that somebody waits for."""

    spec: StructuredSpec
    deadline_s: float
    field_by_ticket: dict[int, str]
    """Who waits, and the field that each asked with."""


class GrammarService:
    """Compiled grammars of one model. All methods are for one thread, and return at once. The service's own threads
    begin with the first request.

    Equal specs are compiled once, whoever asks, and so are errors found. A compilation that takes too long ends the
    wait of those who asked; it goes on in its thread, and what comes of it serves whoever asks later.
    """

    def __init__(
        self,
        backend: GrammarBackend,
        notify: Callable[[], None],
        *,
        max_bytes: int = MAX_CACHED_BYTES,
        max_entries: int = MAX_CACHED,
        timeout_s: float = COMPILE_TIMEOUT_S,
        num_threads: int = NUM_THREADS,
    ) -> None:
        """
        Args:
            backend: compiles.
            notify: called from a thread of the service whenever `poll` has something.
            max_bytes: of grammars that are remembered; those in use by answers live as long as these.
            max_entries: of grammars and errors that are remembered.
            timeout_s: of one compilation, the wait for its turn included.
            num_threads: that compile.
        """
        self._cache = _Cache(max_bytes, max_entries)
        self._timeout_s = timeout_s
        self._jobs: dict[bytes, _Job] = {}
        self._key_by_ticket: dict[int, bytes] = {}
        self._bench = _Bench(backend, notify, num_threads)
        self._end = weakref.finalize(self, self._bench.close)

    def __len__(self) -> int:
        """Requests that wait."""
        return len(self._key_by_ticket)

    def prepare(self) -> None:
        """Does in a thread what would hold up the first compilation."""
        self._bench.put_preparation()

    def request(self, ticket: int, spec: StructuredSpec, now_s: float) -> GrammarEvent | None:
        """Asks for a grammar: the event at once if it is known what comes of it; else None, and `poll` will have it."""
        key = spec.key()
        outcome = self._cache.get(key)
        if outcome is not None:
            return outcome.event(ticket, spec.field)
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = _Job(spec, now_s + self._timeout_s, {})
            self._bench.put(key, spec)
        job.field_by_ticket[ticket] = spec.field
        self._key_by_ticket[ticket] = key
        return None

    def cancel(self, ticket: int) -> None:
        """A request that may wait does not any more; no-op for any other. A compilation that nobody waits for and that
        has not begun is left out."""
        key = self._key_by_ticket.pop(ticket, None)
        if key is None:
            return
        job = self._jobs[key]
        del job.field_by_ticket[ticket]
        if not job.field_by_ticket and self._bench.withdraw(key):
            del self._jobs[key]

    def poll(self, now_s: float) -> list[GrammarEvent]:
        """What requests waited for and has come since the last call, or will not come in time."""
        events = [event for key, outcome in self._bench.take_done() for event in self._settle(key, outcome)]
        late = [key for key, job in self._jobs.items() if job.field_by_ticket and job.deadline_s <= now_s]
        return events + [event for key in late for event in self._give_up(key)]

    def deadline_s(self) -> float | None:
        """When `poll` will give somebody up, if nothing happens before; None: nobody waits."""
        return min((job.deadline_s for job in self._jobs.values() if job.field_by_ticket), default=None)

    def forget(self, spec: StructuredSpec) -> None:
        """Does not hand out a grammar again: one of its matchers became too complex, and they share what they learn."""
        self._cache.remove(spec.key())

    def close(self) -> None:
        """Ends the threads, each when its compilation is over; nobody is told anything any more. Idempotent."""
        self._end()

    def _give_up(self, key: bytes) -> list[GrammarEvent]:
        job = self._jobs[key]
        problem = f"compiling it took more than {self._timeout_s:g} s; make it simpler"
        if self._bench.withdraw(key):
            del self._jobs[key]
            problem = f"it was not compiled within {self._timeout_s:g} s, since others were; try again later"
        else:
            self._bench.replace(key)
        return self._tell(job, _Outcome(None, job.spec.source or list(job.spec.choices), problem))

    def _settle(self, key: bytes, outcome: _Outcome) -> list[GrammarEvent]:
        self._cache.put(key, outcome)
        return self._tell(self._jobs.pop(key), outcome)

    def _tell(self, job: _Job, outcome: _Outcome) -> list[GrammarEvent]:
        waiting, job.field_by_ticket = job.field_by_ticket, {}
        for ticket in waiting:
            del self._key_by_ticket[ticket]
        return [outcome.event(ticket, field) for ticket, field in waiting.items()]


class _Cache:
    """Outcomes by key, the least recently used ones going first."""

    def __init__(self, max_bytes: int, max_entries: int) -> None:
        self._max_bytes = max_bytes
        self._max_entries = max_entries
        self._outcomes: OrderedDict[bytes, _Outcome] = OrderedDict()
        self._num_bytes = 0

    def get(self, key: bytes) -> _Outcome | None:
        outcome = self._outcomes.get(key)
        if outcome is not None:
            self._outcomes.move_to_end(key)
        return outcome

    def put(self, key: bytes, outcome: _Outcome) -> None:
        self.remove(key)
        self._outcomes[key] = outcome
        self._num_bytes += outcome.num_bytes
        while len(self._outcomes) > self._max_entries or self._num_bytes > self._max_bytes:
            self.remove(next(iter(self._outcomes)))

    def remove(self, key: bytes) -> None:
        outcome = self._outcomes.pop(key, None)
        if outcome is not None:
            self._num_bytes -= outcome.num_bytes


class _Bench:
    """What the compiling threads share with the service; they hold nothing else, so that a service can be forgotten."""

    def __init__(self, backend: GrammarBackend, notify: Callable[[], None], num_threads: int) -> None:
        self._backend = backend
        self._notify = notify
        self._num_threads = num_threads
        self._num_begun = 0
        self._changed = threading.Condition()
        self._waiting: OrderedDict[bytes, StructuredSpec | None] = OrderedDict()
        """None: a preparation."""
        self._running: set[bytes] = set()
        self._stuck: set[bytes] = set()
        """Of these, those whose threads have been replaced."""
        self._done: deque[tuple[bytes, _Outcome]] = deque()
        self._is_closed = False

    def put(self, key: bytes, spec: StructuredSpec) -> None:
        self._put(key, spec)

    def put_preparation(self) -> None:
        self._put(b"", None)

    def replace(self, key: bytes) -> None:
        """Another thread takes the place of one that is stuck, which ends with what it does."""
        with self._changed:
            if key in self._running - self._stuck and len(self._stuck) < MAX_STUCK:
                self._stuck.add(key)
                self._begin_thread()

    def _put(self, key: bytes, spec: StructuredSpec | None) -> None:
        with self._changed:
            self._waiting[key] = spec
            self._changed.notify()
            while self._num_begun < self._num_threads:
                self._begin_thread()

    def _begin_thread(self) -> None:
        threading.Thread(target=self.work, name=f"octavo-grammar-{self._num_begun}", daemon=True).start()
        self._num_begun += 1

    def withdraw(self, key: bytes) -> bool:
        """Whether the compilation had not begun, and now will not."""
        with self._changed:
            return self._waiting.pop(key, None) is not None

    def take_done(self) -> Iterator[tuple[bytes, _Outcome]]:
        while self._done:
            yield self._done.popleft()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def work(self) -> None:
        """A thread."""
        while (job := self._next()) is not None:
            key, spec = job
            outcome = self._outcome_of(spec)
            was_replaced = self._ends(key)
            if outcome is not None:
                self._done.append((key, outcome))
                if not self._is_closed:
                    self._notify()
            if was_replaced:
                return

    def _ends(self, key: bytes) -> bool:
        """Takes a compilation off the list; whether its thread has been replaced meanwhile."""
        with self._changed:
            was_replaced = key in self._stuck
            self._running.discard(key)
            self._stuck.discard(key)
            return was_replaced

    def _prepare(self) -> None:
        try:
            self._backend.prepare()
        except Exception:  # whoever asks for a grammar will be told
            log.exception("no grammars can be compiled for this vocabulary")

    def _next(self) -> tuple[bytes, StructuredSpec | None] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if self._is_closed:
                return None
            key, spec = self._waiting.popitem(last=False)
            self._running.add(key)
            return key, spec

    def _outcome_of(self, spec: StructuredSpec | None) -> _Outcome | None:
        """None of a preparation, which nobody waits for."""
        if spec is None:
            self._prepare()
            return None
        try:
            return _Outcome(self._backend.compile(spec))
        except InvalidRequestError as error:
            return _Outcome(None, error.value, error.problem)
        except Exception as error:  # a fault of the backend is that request's alone
            log.exception("a grammar of kind %s could not be compiled", spec.kind)
            return _Outcome(None, spec.source, f"it could not be compiled: {type(error).__name__}")
