"""Drafts in the plan of a step, and what comes of them."""

from octavo.kv.manager import KVManager
from octavo.kv.request_blocks import BlockIds
from octavo.scheduling.counters import SchedulerCounters
from octavo.scheduling.draft_counts import DraftCounts
from octavo.scheduling.plan import StepPlan, StepResult
from octavo.scheduling.request_state import SchedulerRequest
from octavo.scheduling.step_draft import StepDraft


class DraftPlanner:
    """Gives the drafts of a step what its real work has left, and takes back what they did not need.

        token budget    | running | admitted |  drafts, in the order of the plan  | unused |
        blocks          | held by requests   |  free: while nobody waits          |

    So nobody is preempted for a draft, nor kept waiting by one. Blocks that were taken for drafts that came to nothing
    are given back when the step lands.
    """

    def __init__(self, counts: DraftCounts, manager: KVManager, counters: SchedulerCounters) -> None:
        self.counts = counts
        self._manager = manager
        self._counters = counters
        self._block_size = manager.layout.block_size

    def plan(self, draft: StepDraft, *, may_take_blocks: bool) -> None:
        """Adds drafts to the shares of requests that run their last known token, and no other.

        Args:
            may_take_blocks: else only the rest of the blocks is used that requests have.
        """
        left = min(draft.budget, self.counts.open_step(draft.num_tokens, len(draft.shares)))
        for request, (start, num_tokens, _, _) in list(draft.shares.items()):
            if left <= 0:
                return
            if num_tokens != 1 or start + 1 != request.num_foreseen or request in draft.admitted:
                continue
            room = min(left, request.max_total_tokens - request.num_foreseen - 1)
            wanted = min(room, self.counts.wanted(request.request_id)) if room > 0 else 0
            if wanted > 0:
                left -= self._add(draft, request, start + 1, wanted, may_take_blocks=may_take_blocks)

    def _add(self, draft: StepDraft, request: SchedulerRequest, end: int, wanted: int, *, may_take_blocks: bool) -> int:
        """Adds drafts at positions `end ..`; returns how many."""
        at_hand = len(request.blocks.tables[0]) * self._block_size - end
        new_block_ids: BlockIds | None = None
        if wanted > at_hand:
            if may_take_blocks:
                new_block_ids = self._manager.allocate(request.blocks, end + wanted)
            if new_block_ids is None:
                wanted = at_hand
        if wanted > 0:
            draft.add_drafts(request, wanted, new_block_ids)
        return wanted

    def landed(self, request: SchedulerRequest, num_planned: int, num_drafted: int, num_right: int) -> None:
        """Takes note of what came of a request's drafts: those behind the right ones were never computed, and what was
        planned for tokens behind them was planned too far."""
        request.roll_back(num_planned, num_planned - num_right)
        stats = request.stats
        stats.num_computed_tokens += num_drafted
        stats.num_draft_tokens += num_drafted
        stats.num_accepted_draft_tokens += num_right
        self._counters.computed_tokens += num_drafted
        self._counters.draft_tokens += num_drafted
        self._counters.accepted_draft_tokens += num_right
        self.counts.verified(request.request_id, num_planned, num_drafted, num_right)

    def measured(self, plan: StepPlan, result: StepResult) -> None:
        """Takes note of the time that a step took with the drafts that ran."""
        num_tokens = plan.num_tokens - sum(plan.num_draft_tokens) + sum(result.num_draft_tokens)
        self.counts.measured(num_tokens, len(plan.request_ids), result.timings.execute_s)
