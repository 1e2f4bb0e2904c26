"""Drafts in the plan of a step, and what comes of them."""

from octavo.kv.manager import KVManager
from octavo.kv.request_blocks import BlockIds
from octavo.scheduling.counters import count_positions
from octavo.scheduling.draft_counts import DraftCounts
from octavo.scheduling.plan import StepPlan, StepResult
from octavo.scheduling.request_state import RequestStatus, SchedulerRequest
from octavo.scheduling.step_draft import StepDraft


class DraftPlanner:
    """Gives the drafts of a step what its real work has left, and takes back what they did not need.

        token budget    | running | admitted |  drafts, in the order of the plan  | unused |
        blocks          | held by requests   |  free: while nobody waits          |

    So nobody is preempted for a draft, nor kept waiting by one. Blocks that were taken for drafts that came to nothing
    are given back when the step lands.
    """

    def __init__(self, counts: DraftCounts, manager: KVManager) -> None:
        self.counts = counts
        self._manager = manager
        self._block_size = manager.layout.block_size

    def plan(self, draft: StepDraft, *, may_take_blocks: bool) -> None:
        """Adds drafts to the shares of requests that run their last known token, and no other.

        Args:
            may_take_blocks: else only the rest of the blocks is used that requests have.
        """
        budget = min(draft.budget, self.counts.most_per_step)
        num_tokens, num_requests = draft.num_tokens, len(draft.shares)
        if budget <= 0 or not num_requests or not self.counts.worth_asking(num_tokens, num_requests):
            return
        able = self._able(draft, may_take_blocks=may_take_blocks)
        if able:
            candidates = [(request.request_id, most) for request, most in able]
            planned = self.counts.plan_step(num_tokens, num_requests, budget, candidates)
            draft.least_draft_chance = planned.least_chance
            for (request, _), count in zip(able, planned.counts, strict=True):
                if count > 0:
                    self._add(draft, request, count, may_take_blocks=may_take_blocks)

    def _able(self, draft: StepDraft, *, may_take_blocks: bool) -> list[tuple[SchedulerRequest, int]]:
        """Requests that may have drafts, and most of each."""
        able = []
        for request, (start, num_tokens, _, _) in draft.shares.items():
            if num_tokens == 1 and start + 1 == request.num_foreseen and request not in draft.admitted:
                most = request.max_total_tokens - request.num_foreseen - 1
                if not may_take_blocks:
                    most = min(most, self._at_hand(request, start + 1))
                if most > 0:
                    able.append((request, most))
        return able

    def _at_hand(self, request: SchedulerRequest, end: int) -> int:
        """Places from `end` on in the blocks that a request has."""
        return len(request.blocks.tables[0]) * self._block_size - end

    def _add(self, draft: StepDraft, request: SchedulerRequest, count: int, *, may_take_blocks: bool) -> None:
        """Adds drafts behind the last known token, fewer where there are no blocks for them."""
        end = request.num_foreseen
        at_hand = self._at_hand(request, end)
        new_block_ids: BlockIds | None = None
        if count > at_hand:
            if may_take_blocks:
                new_block_ids = self._manager.allocate(request.blocks, end + count)
            if new_block_ids is None:
                count = at_hand
        if count > 0:
            draft.add_drafts(request, count, new_block_ids)

    def landed(self, request: SchedulerRequest, num_planned: int, num_drafted: int, num_right: int) -> None:
        """Takes note of what came of the drafts of a request that goes on: those behind the right ones were never
        computed, and what was planned for tokens behind them was planned too far."""
        request.roll_back(num_planned, num_planned - num_right)
        if num_drafted:
            stats = request.stats
            stats.num_computed_tokens += num_drafted
            stats.num_drafts += 1
            stats.num_draft_tokens += num_drafted
            stats.num_accepted_draft_tokens += num_right
            count_positions(stats.num_accepted_by_position, num_drafted, num_right)
        self.counts.verified(request.request_id, num_planned, num_drafted, num_right)

    def give_back(self, request: SchedulerRequest) -> bool:
        """Frees the blocks that drafts of a step that has landed did not need; whether there were any."""
        is_running = request.status is RequestStatus.RUNNING
        return is_running and self._manager.trim(request.blocks, request.num_computed)

    def measured(self, plan: StepPlan, result: StepResult) -> None:
        """Takes note of the time that a step took with the drafts that ran, if that is worth knowing."""
        if not plan.num_draft_tokens and not self.counts.is_curious:
            return
        num_drafts = sum(result.num_draft_tokens)
        num_tokens = plan.num_known_tokens + num_drafts
        self.counts.measured(num_tokens, len(plan.request_ids), num_drafts, result.timings.total_s)
