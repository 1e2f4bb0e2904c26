"""Requests that wait for the grammar of their answers: it is being compiled on the executing side."""

from typing import NamedTuple

from octavo.request.account import WaitReason
from octavo.request.ready import ReadyEvent
from octavo.request.structured import StructuredSpec
from octavo.scheduling.queue import WaitingQueue
from octavo.scheduling.request_state import RequestStatus, SchedulerRequest


class GrammarOrders(NamedTuple):
    """What the executing side is to do about grammars."""

    asked: tuple[tuple[int, StructuredSpec], ...] = ()
    """Ticket of a request (`ReadyEvent`), and what to compile for it."""
    released: tuple[int, ...] = ()
    """Requests that have ended: none of them needs its grammar once the steps in flight have run, and nobody waits for
    one that is still being compiled."""


class GrammarWaits:
    """Who waits for a grammar. They stay in the queue, parked, and come back to their places.

    A grammar is asked for when its request arrives and released when it ends, in whatever state; in between it is kept
    on the executing side, so a request that was preempted does not wait again.
    """

    def __init__(self, waiting: WaitingQueue) -> None:
        self._waiting = waiting
        self._waiters: dict[int, tuple[SchedulerRequest, float]] = {}
        """By ticket, with the time of arrival."""
        self._asked: list[tuple[int, StructuredSpec]] = []
        self._released: list[int] = []

    def __len__(self) -> int:
        """Requests that wait for a grammar."""
        return len(self._waiters)

    def arrive(self, request: SchedulerRequest, now_s: float) -> None:
        """A request has just been queued; it is parked if its answer has a shape."""
        spec = request.request.params.structured_outputs
        if spec is None:
            return
        request.status = RequestStatus.WAITING_FOR_GRAMMAR
        self._waiting.park(request, WaitReason.GRAMMAR)
        self._waiters[request.arrival_index] = request, now_s
        self._asked.append((request.arrival_index, spec))

    def take_in(self, event: ReadyEvent, now_s: float) -> SchedulerRequest | None:
        """The request whose wait has ended, back in its place; None if it has ended meanwhile."""
        request, since_s = self._waiters.pop(event.ticket, (None, 0.0))
        if request is not None:
            request.stats.waited_for_grammar_s = now_s - since_s
            request.status = RequestStatus.WAITING
            self._waiting.unpark(request)
        return request

    def leave(self, request: SchedulerRequest) -> None:
        """A request ends, after it has been taken out of the queue; no-op for one without a grammar."""
        if request.request.params.structured_outputs is not None:
            self._waiters.pop(request.arrival_index, None)
            self._released.append(request.arrival_index)

    def take_orders(self) -> GrammarOrders | None:
        """What has come up since the last call; None: nothing."""
        if not (self._asked or self._released):
            return None
        orders = GrammarOrders(tuple(self._asked), tuple(self._released))
        self._asked, self._released = [], []
        return orders
