"""The grammars of live requests, between those who ask for them and the sampler that follows them."""

from collections import deque
from dataclasses import dataclass, field

from octavo.decoding.structured.backend import CompiledGrammar
from octavo.decoding.structured.service import GrammarEvent, GrammarService
from octavo.errors import InvalidRequestError, RequestFailedError
from octavo.request.control import Refusal
from octavo.request.ready import ReadyEvent
from octavo.request.structured import StructuredSpec


@dataclass
class _Kept:
    """A grammar, and the requests that it is kept for."""

    grammar: CompiledGrammar
    tickets: set[int] = field(default_factory=set)


class Grammars:
    """A `GrammarCompiler`. Two threads know it: that of the engine core, which asks and releases, and that of the
    steps, which calls `of` and `forget`. A grammar is kept from the event that it is there to its release, whatever the
    service's cache forgets meanwhile."""

    def __init__(self, service: GrammarService) -> None:
        """`service`: from here on only this object calls it."""
        self._service = service
        self._kept: dict[bytes, _Kept] = {}
        """By the key of the spec."""
        self._keys: dict[int, bytes] = {}
        """Ticket -> key, from `request` to `release`."""
        self._known: deque[GrammarEvent] = deque()
        """What was known when it was asked for."""
        self._to_forget: deque[StructuredSpec] = deque()

    def prepare(self) -> None:
        """See GrammarCompiler."""
        self._service.prepare()

    def request(self, ticket: int, spec: StructuredSpec, now_s: float) -> None:
        """See GrammarCompiler."""
        self._forget_spoiled()
        self._keys[ticket] = spec.key()
        event = self._service.request(ticket, spec, now_s)
        if event is not None:
            self._known.append(event)

    def release(self, ticket: int) -> None:
        """See GrammarCompiler."""
        self._service.cancel(ticket)
        key = self._keys.pop(ticket, b"")
        kept = self._kept.get(key)
        if kept is None:
            return
        kept.tickets.discard(ticket)
        if not kept.tickets:
            del self._kept[key]

    def poll(self, now_s: float) -> list[ReadyEvent]:
        """See GrammarCompiler."""
        known, self._known = self._known, deque()
        events = (*known, *self._service.poll(now_s))
        return [self._ready(event) for event in events if event.ticket in self._keys]

    def deadline_s(self) -> float | None:
        """See GrammarCompiler."""
        return self._service.deadline_s()

    def close(self) -> None:
        """See GrammarCompiler."""
        self._service.close()

    def of(self, spec: StructuredSpec) -> CompiledGrammar:
        """The grammar of a request that has been told that it is there.

        Raises:
            RequestFailedError: none is kept.
        """
        kept = self._kept.get(spec.key())
        if kept is None:
            raise RequestFailedError(f"{spec.field}: its grammar has not been compiled")
        return kept.grammar

    def forget(self, spec: StructuredSpec) -> None:
        """See `GrammarService.forget`; done when the next grammar is asked for."""
        self._to_forget.append(spec)

    def _forget_spoiled(self) -> None:
        while self._to_forget:
            self._service.forget(self._to_forget.popleft())

    def _ready(self, event: GrammarEvent) -> ReadyEvent:
        if event.error is not None:
            return ReadyEvent(ticket=event.ticket, refusal=_refusal(event.error))
        if event.grammar is not None:
            kept = self._kept.setdefault(self._keys[event.ticket], _Kept(event.grammar))
            kept.grammar = event.grammar
            kept.tickets.add(event.ticket)
        return ReadyEvent(ticket=event.ticket)


def _refusal(error: InvalidRequestError) -> Refusal:
    return Refusal(message=error.problem, status=400, field=error.field, value=_short(error.value))


def _short(value: object) -> str:
    """For people; a schema may be long."""
    text = str(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
