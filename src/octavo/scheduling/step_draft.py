"""A step while it is being planned."""

from collections.abc import Iterable

from octavo.kv.request_blocks import BlockIds
from octavo.request.account import WorkDone
from octavo.request.outputs import LogprobRow
from octavo.scheduling.plan import BlockCopy, BlockSwap, NewRequestData, StepPlan
from octavo.scheduling.request_state import RequestStatus, SchedulerRequest

Share = tuple[int, int, BlockIds, int]
"""What one request gets of a step: tokens computed before it, tokens to run, new block ids, drafts to be tried behind
these tokens."""


class StepDraft:
    """Who runs in a step, in plan order, and what is left of the token budget."""

    __slots__ = (
        "admitted",
        "budget",
        "evicted",
        "has_drafts",
        "is_short",
        "least_draft_chance",
        "may_preempt",
        "must_land",
        "now_s",
        "shares",
        "step",
        "void",
        "works",
    )

    def __init__(self, step: int, budget: int, *, now_s: float = 0.0, may_preempt: bool = True) -> None:
        self.step = step
        """The number that its plan will have."""
        self.now_s = now_s
        """When it is planned."""
        self.budget = budget
        self.may_preempt = may_preempt
        """Whether no other step is in flight. Nobody is preempted before: who yields is decided by what is known, and
        no part of a step in flight belongs to somebody who waits."""
        self.shares: dict[SchedulerRequest, Share] = {}
        self.admitted: dict[SchedulerRequest, None] = {}
        self.has_drafts = False
        self.least_draft_chance = 0.0
        self.is_short = False
        """Whether running requests were short of blocks."""
        self.must_land = False
        """Whether somebody has to be preempted, once that may be."""
        self.evicted: set[SchedulerRequest] = set()
        """Preempted to let more urgent ones start."""
        self.works: list[WorkDone] = []
        """Once planned: what each share counts for, in plan order."""
        self.void: set[SchedulerRequest] = set()
        """In flight: whose part is garbage, for they read what others wrote who failed before."""

    def add(self, request: SchedulerRequest, num_tokens: int, new_block_ids: BlockIds) -> None:
        """Gives a request its share and charges the budget."""
        self.shares[request] = (request.num_computed, num_tokens, new_block_ids, 0)
        self.budget -= num_tokens

    def add_drafts(self, request: SchedulerRequest, num_drafts: int, new_block_ids: BlockIds | None) -> None:
        """Adds drafts to a share, with the blocks that they took, if any, and charges the budget."""
        computed, num_tokens, block_ids, _ = self.shares[request]
        if new_block_ids is not None:
            block_ids = tuple([(*ids, *more) for ids, more in zip(block_ids, new_block_ids, strict=True)])
        self.shares[request] = (computed, num_tokens, block_ids, num_drafts)
        self.budget -= num_drafts
        self.has_drafts = True

    @property
    def num_tokens(self) -> int:
        """Tokens that run, but for drafts."""
        return sum([share[1] for share in self.shares.values()])

    def withdraw(self, request: SchedulerRequest) -> bool:
        """Takes a share back, if the request has one, and refunds the budget."""
        share = self.shares.pop(request, None)
        if share is None:
            return False
        self.budget += share[1] + share[3]
        return True

    def note_time(self, seconds: float) -> None:
        """The step has run: each share's part of its time is that of the rows."""
        shares = self.shares.values()
        per_row = seconds / sum([share[1] + share[3] for share in shares])
        for work, share in zip(self.works, shares, strict=True):
            work.steps_s += seconds
            work.share_s += (share[1] + share[3]) * per_row

    def correct(self, work: WorkDone, request: SchedulerRequest, num_drafted: int, end: int) -> None:
        """Of the drafts of a share fewer have run than were planned, or they stood further to the front: behind drafts
        that were wrong.

        Args:
            work: what the share was counted for.
            end: the place behind what has run.
        """
        start, num_tokens, _, num_drafts = self.shares[request]
        planned, ran = num_tokens + num_drafts, num_tokens + num_drafted
        request.book.correct(work, (planned, start + planned), (ran, end))

    def take_prompt_logprobs(self, rows_by_id: dict[str, list[LogprobRow]]) -> None:
        """Hands out what the step, which has run, brought for the prompts of requests that still run."""
        if not rows_by_id:
            return
        for request in self.shares:
            if request.status is RequestStatus.RUNNING and request not in self.void:
                request.add_prompt_logprobs(rows_by_id.get(request.request_id, []))

    def to_plan(self, preempted: Iterable[str], finished: Iterable[str]) -> StepPlan:
        """The plan, columnar. Reads each request as it is before the step."""
        shares, admitted = self.shares.values(), self.admitted
        new_block_ids = [share[2] for share in shares]
        if admitted:  # their blocks stand in `new_requests`
            no_blocks: BlockIds = ((),) * len(next(iter(admitted)).blocks.tables)
            new_block_ids = [no_blocks if request in admitted else share[2] for request, share in self.shares.items()]
        return StepPlan(
            step=self.step,
            request_ids=tuple([request.request_id for request in self.shares]),
            num_scheduled_tokens=tuple([share[1] + share[3] for share in shares]),
            num_computed_tokens=tuple([share[0] for share in shares]),
            num_draft_tokens=tuple([share[3] for share in shares]) if self.has_drafts else (),
            least_draft_chance=self.least_draft_chance,
            new_block_ids=tuple(new_block_ids),
            new_requests=tuple([_new_request_data(request) for request in admitted]),
            block_copies=tuple([BlockCopy(*copy) for request in admitted for copy in request.blocks.copies()]),
            block_swaps=tuple([swap for request in self.shares if request.blocks.swaps for swap in _swaps(request)]),
            preempted_request_ids=tuple(preempted),
            finished_request_ids=tuple(finished),
        )


def _new_request_data(request: SchedulerRequest) -> NewRequestData:
    return NewRequestData(
        request_id=request.request_id,
        token_ids=list(request.token_ids),
        num_prompt_tokens=request.num_prompt_tokens,
        params=request.request.params,
        eos_token_ids=request.request.eos_token_ids,
        block_ids=request.blocks.block_ids(),
        pooling=request.request.pooling,
        tenant=request.request.tenant,
        cache_salt=request.request.cache_salt,
    )


def _swaps(request: SchedulerRequest) -> Iterable[BlockSwap]:
    return [BlockSwap(request.request_id, *swap) for swap in request.blocks.take_swaps()]
