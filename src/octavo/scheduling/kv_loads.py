"""Requests that wait for KV: blocks that they will go on from are being loaded from a tier."""

from collections.abc import Iterable

from octavo.kv.load import Load
from octavo.kv.manager import PrefixHit
from octavo.kv.tiers import Tiers
from octavo.kv.transfer import TransferEvent
from octavo.request.account import WaitReason
from octavo.scheduling.admission import Admission
from octavo.scheduling.queue import WaitingQueue
from octavo.scheduling.request_state import RequestStatus, SchedulerRequest
from octavo.scheduling.step_draft import StepDraft

MAX_WAITS = 2
"""How often a request waits before it runs: for what others had begun to load, and for the rest. Then it runs with what
is there, whatever has become of the loads."""


class KVLoads:
    """Who waits for which load. They stay in the queue, parked; a load without anybody who waits for it is cancelled.

    When a load has ended, whoever waited for it comes back to its place in the queue and finds what has come as any
    other hit. So there is one way to be admitted, and none of them has anything to be freed.
    """

    def __init__(self, tiers: Tiers, waiting: WaitingQueue, admission: Admission) -> None:
        self._tiers = tiers
        self._waiting = waiting
        self._admission = admission
        self._waiters: dict[Load, dict[SchedulerRequest, None]] = {}
        """In the order in which the loads began."""
        self._load_of: dict[SchedulerRequest, Load] = {}

    def __len__(self) -> int:
        """Requests that wait for KV."""
        return len(self._load_of)

    def wait_for_load(self, request: SchedulerRequest, hit: PrefixHit, draft: StepDraft, now_s: float) -> bool:
        """Whether a request at the head of the queue, for which there is room, should wait for KV; if so it does."""
        if request.num_kv_waits == MAX_WAITS or not request.blocks.reads_cache:
            return False
        last_step = draft.step - 1
        load = self._tiers.load_for(
            request.blocks,
            hit.num_blocks,
            now_s,
            after_step=last_step,
            parents_step=draft.step if draft.shares else last_step,
        )
        if load is None:
            return False
        request.num_kv_waits += 1
        request.status = RequestStatus.WAITING_FOR_KV
        self._waiting.park(request, WaitReason.KV)
        self._waiters.setdefault(load, {})[request] = None
        self._load_of[request] = load
        return True

    def admitted(self, request: SchedulerRequest, hit: PrefixHit) -> None:
        """A request goes on from a hit."""
        self._tiers.touch(request.blocks, hit.num_blocks)

    def forget(self, request: SchedulerRequest) -> None:
        """A request ends, before it has been taken out of the queue; no-op for one that does not wait for KV."""
        load = self._load_of.pop(request, None)
        if load is None:
            return
        del self._waiters[load][request]
        if not self._waiters[load]:
            del self._waiters[load]
            self._tiers.cancel_load(load)
            self._admission.blocks_came_back()

    def give_way(self) -> bool:
        """Cancels the load that began last, so that its blocks are free; False if there is none."""
        if not self._waiters:
            return False
        load = next(reversed(self._waiters))
        self._tiers.cancel_load(load)
        self._end([load])
        return True

    def take_in(self, events: Iterable[TransferEvent], now_s: float) -> None:
        """Takes in what stores report."""
        self._end(self._tiers.take_in(events, now_s))

    def expire(self, now_s: float) -> None:
        """Ends what has taken too long."""
        self._end(self._tiers.expire(now_s))

    def _end(self, loads: Iterable[Load]) -> None:
        for load in loads:
            self._admission.blocks_came_back()
            loaded = load.loaded()
            for request in self._waiters.pop(load):
                del self._load_of[request]
                request.status = RequestStatus.PREEMPTED if request.has_run else RequestStatus.WAITING
                request.loaded |= loaded
                self._waiting.unpark(request)
