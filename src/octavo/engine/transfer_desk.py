"""Hands what is decided about transfers to the stores of the tiers, each at its time, and collects what they report."""

import weakref
from collections.abc import Sequence

from octavo.engine.waker import Waker
from octavo.execution.protocols import KVStore
from octavo.kv.transfer import TransferEvent, TransferOrders, TransferPlan, TransferState


class TransferDesk:
    """The stores, and the plans that wait for steps to land. For the thread of the engine core."""

    def __init__(self, stores: Sequence[KVStore], waker: Waker) -> None:
        """`waker`: what the stores notify."""
        self.waker = waker
        self._stores = {store.tier: store for store in stores}
        self._held_back: dict[int, TransferPlan] = {}
        """Plans whose fence has not been passed, by id."""
        self._last_landed = -1
        self._events: list[TransferEvent] = []
        """Of plans that ended before any store got them."""
        self._end = weakref.finalize(self, _close, stores, waker)
        """Also when the desk is forgotten without `close`, or the program ends: no store's thread may outlive it."""

    def obey(self, orders: TransferOrders) -> None:
        """Passes orders on. When it returns, no store touches device blocks of cancelled transfers."""
        for tier, transfer_id in orders.cancels:
            if self._held_back.pop(transfer_id, None) is None:
                self._stores[tier].cancel(transfer_id)
            else:
                self._events.append(
                    TransferEvent(transfer_id=transfer_id, state=TransferState.FAILED, num_moved=0, problem="cancelled")
                )
        for tier, store in self._stores.items():
            names = [name for where, name in orders.removals if where is tier]
            if names:
                store.remove(names)
        for plan in orders.plans:
            self._held_back[plan.transfer_id] = plan
        self._start_what_may()

    def landed(self, step: int) -> None:
        """A step has run, and all before it."""
        self._last_landed = step
        if self._held_back:
            self._start_what_may()

    def poll(self) -> list[TransferEvent]:
        """Events since the last call."""
        if not self.waker.take() and not self._events:
            return []
        events, self._events = self._events, []
        for store in self._stores.values():
            events += store.poll()
        return events

    def close(self) -> None:
        """Closes the stores, which finish what they can in a short time; idempotent."""
        self._held_back.clear()
        self._end()

    def _start_what_may(self) -> None:
        for plan in [plan for plan in self._held_back.values() if plan.after_step <= self._last_landed]:
            del self._held_back[plan.transfer_id]
            self._stores[plan.tier].start(plan)


def _close(stores: Sequence[KVStore], waker: Waker) -> None:
    for store in stores:
        store.close()
    waker.close()
