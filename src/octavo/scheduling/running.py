"""The running requests, and the ways in and out."""

from collections.abc import Iterator

from octavo.config import SchedulerConfig
from octavo.kv.manager import KVManager
from octavo.request.account import Phase
from octavo.scheduling.admission import Admission
from octavo.scheduling.counters import SchedulerCounters
from octavo.scheduling.policy import SchedulingPolicy
from octavo.scheduling.preemption import victim_rule
from octavo.scheduling.queue import WaitingQueue
from octavo.scheduling.request_state import RequestStatus, SchedulerRequest
from octavo.scheduling.step_draft import StepDraft
from octavo.scheduling.tenants import Tenants


class RunningSet:
    """Requests that run, in the order of their admission. What hangs on their number is told of every change."""

    def __init__(
        self,
        config: SchedulerConfig,
        policy: SchedulingPolicy,
        manager: KVManager,
        waiting: WaitingQueue,
        tenants: Tenants,
        admission: Admission,
        counters: SchedulerCounters,
    ) -> None:
        """
        Raises:
            ConfigError: there is no such rule for the choice of victims.
        """
        self._max_length = config.max_num_seqs
        self._urgency = policy.urgency
        self._choose_victim = victim_rule(config.preemption_victim, policy.choose_victim)
        self._manager = manager
        self._waiting = waiting
        self._tenants = tenants
        self._admission = admission
        self._counters = counters
        self._requests: dict[SchedulerRequest, None] = {}
        self._preempted_ids: list[str] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[SchedulerRequest]:
        """In the order of admission. Not to be changed meanwhile."""
        return iter(self._requests)

    @property
    def num_tokens(self) -> int:
        """Known tokens of all of them."""
        return sum([len(request.token_ids) for request in self._requests])

    @property
    def num_tokens_to_run(self) -> int:
        """Tokens of theirs that no planned step runs, those included that planned steps yield."""
        return sum([len(one.token_ids) + one.num_pending - one.num_computed for one in self._requests])

    def num_stalled(self, draft: StepDraft) -> int:
        """How many have no part of a step, although they could use a token; not those whose last one is in flight."""
        shares = draft.shares
        return sum([one not in shares and one.num_foreseen < one.max_total_tokens for one in self._requests])

    @property
    def has_place(self) -> bool:
        """Whether one more may run."""
        return len(self._requests) < self._max_length

    def enter(self, request: SchedulerRequest, now_s: float) -> None:
        """Takes in a request that has just got its blocks, from the waiting queue."""
        self._waiting.start(request, now_s)
        if request.status is RequestStatus.WAITING:
            request.book.clock.enter(Phase.PREFILL, now_s)
            request.stats.first_scheduled_s = now_s
            request.stats.num_cached_tokens = request.num_computed
            self._counters.prompt_tokens += request.num_prompt_tokens
            self._counters.prefix_queries += request.num_prompt_tokens if request.blocks.reads_cache else 0
            self._counters.cached_tokens += request.num_computed
            self._counters.copied_tokens += request.blocks.num_copied_tokens
            request.count_loaded_tokens(self._manager.layout.block_size)
            for tier, count in request.stats.num_loaded_tokens.items():
                self._counters.loaded_tokens[tier] = self._counters.loaded_tokens.get(tier, 0) + count
        else:
            request.book.clock.enter(Phase.RECOMPUTE, now_s)
            request.come_back()
            self._counters.resumed_cached_tokens += request.num_computed
        request.status = RequestStatus.RUNNING
        self._requests[request] = None
        self._tenants.started(request.request.tenant)

    def leave(self, request: SchedulerRequest) -> None:
        """Lets go of a request. Its blocks are the caller's business."""
        del self._requests[request]
        self._tenants.stopped(request.request.tenant)
        self._admission.blocks_came_back()

    def pick_victim(self, candidates: list[SchedulerRequest]) -> SchedulerRequest:
        """One of the least urgent of these, which are given in the order of admission."""
        urgency = self._urgency
        if urgency is not None:
            least = max(map(urgency, candidates))
            candidates = [request for request in candidates if urgency(request) == least]
        return self._choose_victim(candidates, self._manager)

    def preempt(self, victim: SchedulerRequest, draft: StepDraft) -> None:
        """Takes a request out of the step under planning, if it has a share, and sends it back."""
        if draft.withdraw(victim):
            self._manager.withdraw(victim.blocks)
        self.send_back(victim, draft.now_s)

    def send_back(self, request: SchedulerRequest, now_s: float) -> None:
        """From running to waiting, with nothing computed and its tokens kept."""
        self.leave(request)
        self._manager.free(request.blocks)
        request.preempt(now_s)
        self._waiting.add(request)
        self._preempted_ids.append(request.request_id)
        self._counters.preemptions += 1

    def take_preempted_ids(self) -> list[str]:
        """Those sent back since the last call, for the plan."""
        ids, self._preempted_ids = self._preempted_ids, []
        return ids
