"""Lets waiting requests start: in order, past those that do not fit, and in place of less urgent ones."""

from octavo.config import SchedulerConfig
from octavo.kv.manager import KVManager, PrefixHit
from octavo.request.account import WaitReason
from octavo.scheduling.admission import Admission
from octavo.scheduling.kv_loads import KVLoads
from octavo.scheduling.policy import SchedulingPolicy
from octavo.scheduling.queue import WaitingQueue
from octavo.scheduling.request_state import RequestStatus, SchedulerRequest
from octavo.scheduling.running import RunningSet
from octavo.scheduling.step_draft import StepDraft
from octavo.scheduling.tenants import Tenants
from octavo.scheduling.wait_book import WaitBook

_MAX_PASSED_PER_STEP = 4
"""Waiting requests that do not fit which a step looks past: each costs a lookup in every step."""


class Starter:
    """Moves requests from the waiting queue into the running set and the step under planning."""

    def __init__(
        self,
        config: SchedulerConfig,
        policy: SchedulingPolicy,
        manager: KVManager,
        waiting: WaitingQueue,
        running: RunningSet,
        tenants: Tenants,
        admission: Admission,
        loads: KVLoads | None,
        waits: WaitBook,
    ) -> None:
        """
        Args:
            loads: who waits for KV; None: there are no tiers to load from.
            waits: hears of what those lack who do not start.
        """
        self._waits = waits
        self._max_bypasses = config.max_bypasses
        self._urgency = policy.urgency if config.priority_eviction else None
        self._manager = manager
        self._waiting = waiting
        self._running = running
        self._tenants = tenants
        self._admission = admission
        self._loads = loads

    def admit_waiting(self, draft: StepDraft, limit: int, now_s: float) -> WaitReason:
        """Admits waiting requests in order, as long as there are places and budget.

        One that does not fit may be overtaken by a bounded number of others; after these, and at once if it was
        preempted, it holds the line.

        Args:
            limit: most tokens of one request in this step.

        Returns:
            What those wait for that it has not looked at.
        """
        self._waiting.begin_step()
        passed: list[SchedulerRequest] = []
        stop: WaitReason | None = None
        while stop is None and draft.budget and self._line_moves(passed):
            request = self._waiting.head()
            if request is None or request in draft.evicted:
                stop = WaitReason.ORDER
            else:
                stop = self._try(request, limit, draft, passed, now_s)
        self._waiting.restore()
        if not self._running.has_place:
            return WaitReason.SLOTS
        return stop or (WaitReason.ORDER if draft.budget else WaitReason.BUDGET)

    def _try(
        self,
        request: SchedulerRequest,
        limit: int,
        draft: StepDraft,
        passed: list[SchedulerRequest],
        now_s: float,
    ) -> WaitReason | None:
        """Lets the head of the line start, or sets it aside; or says why the line ends here."""
        lacks = self._start(request, limit, draft, now_s)
        if lacks is None or self._start_by_eviction(request, limit, draft, now_s):
            if request in draft.admitted:
                self._running.enter(request, now_s)
            for other in passed:
                other.num_bypassed += 1
            return None
        if draft.must_land:
            return WaitReason.STEP
        if lacks is not WaitReason.SLOTS:
            self._waits.judge(request, lacks)
        if not self._running.has_place or request.status is RequestStatus.PREEMPTED:
            return WaitReason.ORDER
        self._waiting.set_aside(request)
        passed.append(request)
        return None

    def _line_moves(self, passed: list[SchedulerRequest]) -> bool:
        """Whether those that did not fit may be overtaken, also once more."""
        most = self._max_bypasses
        return len(passed) <= _MAX_PASSED_PER_STEP and all(request.num_bypassed < most for request in passed)

    def _start(self, request: SchedulerRequest, limit: int, draft: StepDraft, now_s: float) -> WaitReason | None:
        """What a request lacks. If nothing, gives it its prefix hit, blocks and tokens; or has it wait for KV, unless
        somebody has fallen to make room.

        The forecast does not hold up who is more urgent than somebody that runs: that one can still yield.
        """
        if not self._running.has_place:
            return WaitReason.SLOTS
        hit = self._manager.match(request.blocks)
        if self._admission.num_missing(request, hit, len(self._running)) > 0:
            return WaitReason.BLOCKS
        if not self._admission.foresees_room(request, hit, self._running) and not self._yielding_to(request, draft):
            return WaitReason.FORECAST
        if self._loads is not None and not draft.evicted and self._loads.wait_for_load(request, hit, draft, now_s):
            return None
        self._admission.somebody_starts(request, hit)
        self._give_share(request, hit, limit, draft)
        return None

    def _give_share(self, request: SchedulerRequest, hit: PrefixHit, limit: int, draft: StepDraft) -> None:
        count = min(len(request.token_ids) - hit.num_tokens, limit, draft.budget)
        self._manager.adopt(request.blocks, hit)
        new_block_ids = self._manager.allocate(request.blocks, hit.num_tokens + count)
        if new_block_ids is None:
            raise RuntimeError(f"{request.request_id} had room, but blocks for {count} tokens are not free")
        request.num_computed = hit.num_tokens
        draft.add(request, count, new_block_ids)
        draft.admitted[request] = None
        if self._loads is not None:
            self._loads.admitted(request, hit)

    def _start_by_eviction(self, request: SchedulerRequest, limit: int, draft: StepDraft, now_s: float) -> bool:
        """Preempts less urgent requests until a waiting one can start. Nobody falls if all of them were not enough.

        Only strictly less urgent ones yield, so nobody evicts who evicted it.
        """
        victims = self._yielding_to(request, draft)
        if not victims:
            return False
        hit = self._manager.match(request.blocks)
        num_private = sum(self._manager.num_private_blocks(victim.blocks) for victim in victims)
        if self._admission.num_missing(request, hit, len(self._running)) > num_private:
            return False
        draft.must_land = not draft.may_preempt
        while victims and draft.may_preempt:
            victim = self._running.pick_victim(victims)
            victims.remove(victim)
            self._running.preempt(victim, draft)
            draft.evicted.add(victim)
            if self._start(request, limit, draft, now_s) is None:
                return True
        return False  # its hit was on blocks that a victim would have filled in this very step

    def _yielding_to(self, request: SchedulerRequest, draft: StepDraft) -> list[SchedulerRequest]:
        """Running requests that a waiting one may evict now, in the order of admission: less urgent ones, not just
        admitted, and where shares are fair of the same tenant."""
        urgency = self._urgency
        if urgency is None:
            return []
        own = urgency(request)
        less_urgent = [other for other in self._running if urgency(other) > own]
        return [
            other
            for other in less_urgent
            if other not in draft.admitted
            and self._tenants.may_take_from(request.request.tenant, other.request.tenant)
            and self._manager.is_withdrawable(other.blocks)
        ]
