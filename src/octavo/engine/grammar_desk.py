"""Hands what is decided about grammars to who compiles them, each at its time, and collects what has come of them."""

import weakref
from collections import deque

from octavo.engine.waker import Waker
from octavo.execution.protocols import GrammarCompiler
from octavo.request.ready import ReadyEvent
from octavo.scheduling.grammar_waits import GrammarOrders


class GrammarDesk:
    """The compiler, and releases that wait for steps to land. For the thread of the engine core."""

    def __init__(self, compiler: GrammarCompiler, waker: Waker) -> None:
        """`waker`: what the compiler notifies."""
        self.waker = waker
        self._compiler = compiler
        self._held_back: deque[tuple[int, int]] = deque()
        """Step that has to land, ticket to release then; in the order of steps."""
        self._end = weakref.finalize(self, _close, compiler, waker)
        """Also when the desk is forgotten without `close`, or the program ends."""

    def obey(self, orders: GrammarOrders, last_step: int | None, now_s: float) -> None:
        """Passes orders on.

        Args:
            last_step: the newest step in flight, which may still take a released request in; None: there is none.
        """
        for ticket, spec in orders.asked:
            self._compiler.request(ticket, spec, now_s)
        for ticket in orders.released:
            if last_step is None:
                self._compiler.release(ticket)
            else:
                self._held_back.append((last_step, ticket))

    def landed(self, step: int) -> None:
        """A step has run, and all before it."""
        while self._held_back and self._held_back[0][0] <= step:
            self._compiler.release(self._held_back.popleft()[1])

    def poll(self, now_s: float) -> list[ReadyEvent]:
        """Events since the last call."""
        self.waker.take()
        return self._compiler.poll(now_s)

    def deadline_s(self) -> float | None:
        """When `poll` will have something, if nothing happens before."""
        return self._compiler.deadline_s()

    def prepare(self) -> None:
        """Has what the first compilation would wait for done now."""
        self._compiler.prepare()

    def close(self) -> None:
        """Idempotent."""
        self._held_back.clear()
        self._end()


def _close(compiler: GrammarCompiler, waker: Waker) -> None:
    compiler.close()
    waker.close()
