"""A request as the scheduler sees it: its tokens, how many are computed, when it ends, and its ledger."""

from enum import Enum, auto

import msgspec

from octavo.kv.hashing import BlockHash
from octavo.kv.pins import Pin
from octavo.kv.record import Tier
from octavo.kv.request_blocks import RequestBlocks
from octavo.request.account import Phase, WaitReason
from octavo.request.outputs import FinishReason, LogprobRow, RequestStats
from octavo.request.request import GenerateRequest
from octavo.scheduling.no_book import NO_BOOK
from octavo.scheduling.repetition import RepetitionDetector
from octavo.scheduling.request_book import RequestBook

MAX_PREEMPTION_TIMES = 32
"""How many of its preemptions a request remembers the times of."""


class RequestStatus(Enum):
    """Where a request stands. FINISHED is final. From WAITING and PREEMPTED one is admitted, or waits for KV first and
    comes back. Requests for answers of a given shape come as WAITING_FOR_GRAMMAR and go on to WAITING."""

    WAITING = auto()
    WAITING_FOR_GRAMMAR = auto()
    """What its answer must look like is being compiled; it is not admitted meanwhile."""
    WAITING_FOR_KV = auto()
    """Blocks that it will go on from are being loaded; it is not admitted meanwhile."""
    RUNNING = auto()
    PREEMPTED = auto()
    FINISHED = auto()


class SchedulerRequest:
    """A live request. Mutated by the scheduler only.

    |<---- known tokens n = prompt + outputs ---->|<- p: sampled in steps in flight, ids unknown ->|
    |<---- c: computed ---->|        counted when scheduled: after `schedule` c includes the steps in flight

    A step may run tokens up to n + p: by then those p will stand in the runner's slot. Drafts count in both p and c as
    if all were right, until their step lands.
    """

    __slots__ = (
        "_ending_token_ids",
        "_eos_token_ids",
        "_most_computed",
        "_prompt_logprobs",
        "_repetition",
        "_stop_token_ids",
        "arrival_index",
        "arrival_work",
        "blocks",
        "book",
        "finish_reason",
        "has_emitted",
        "loaded",
        "max_total_tokens",
        "num_bypassed",
        "num_computed",
        "num_hit_tokens",
        "num_kv_waits",
        "num_pending",
        "pin",
        "request",
        "request_id",
        "stats",
        "status",
        "stop_token_id",
        "token_ids",
    )

    def __init__(
        self,
        request: GenerateRequest,
        token_ids: list[int],
        blocks: RequestBlocks,
        *,
        arrival_index: int,
        arrival_s: float,
        arrival_work: int = 0,
        max_model_len: int,
        book: RequestBook | None = None,
    ) -> None:
        """
        Args:
            token_ids: starts as a copy of the prompt; `blocks` reads the same list.
            arrival_index: 0, 1, 2, ... in the order of arrival.
            arrival_work: tokens that the engine had computed until then, a clock that goes as fast as the machine.
            book: takes its account down. None: nobody does.
        """
        self.book = NO_BOOK if book is None else book
        self.request = request
        self.request_id = request.request_id
        self.token_ids = token_ids
        self.blocks = blocks
        self.arrival_index = arrival_index
        self.arrival_work = arrival_work
        self.pin: Pin | None = None
        """The session that it belongs to."""
        self.status = RequestStatus.WAITING
        self.num_computed = 0
        self.num_pending = 0
        """Most tokens that steps in flight will yield: one each, and one for each draft."""
        self.num_hit_tokens = 0
        """While it waits, under policies that ask: its tokens in the prefix cache, in whole blocks."""
        self.num_kv_waits = 0
        """How often it has waited for KV since it came or was preempted."""
        self.loaded: dict[BlockHash, Tier] = {}
        """Blocks that were loaded for this request, and the tier from which they have come."""
        self.num_bypassed = 0
        """How many were admitted while this one stood before them and did not fit."""
        self.finish_reason: FinishReason | None = None
        self.stop_token_id: int | None = None
        self.has_emitted = False
        """Whether an output with tokens has left."""
        self.stats = RequestStats(
            received_s=request.received_s,
            sent_s=request.sent_s,
            arrival_s=arrival_s,
            num_prompt_tokens=len(token_ids),
        )
        self._eos_token_ids = frozenset(request.eos_token_ids)
        self._stop_token_ids = frozenset(request.params.stop_token_ids)
        self._ending_token_ids = self._eos_token_ids | self._stop_token_ids
        detection = request.params.repetition_detection
        self._repetition = None if detection is None else RepetitionDetector(detection)
        self.max_total_tokens = max_total_tokens(request, max_model_len)
        """Prompt + outputs at which it ends, whatever its tokens are."""
        self._most_computed = 0
        self._prompt_logprobs: list[LogprobRow | None] = [None]

    @property
    def num_prompt_tokens(self) -> int:
        return self.stats.num_prompt_tokens

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.stats.num_prompt_tokens

    @property
    def num_foreseen(self) -> int:
        """Most tokens that are known when the steps in flight have landed."""
        return len(self.token_ids) + self.num_pending

    @property
    def num_overrun(self) -> int:
        """Of one that its own token ends: tokens computed from that on, for nothing. Drafts in flight do not count: how
        many of them run is not known."""
        return self.num_computed - max(0, self.num_pending - 1) - (len(self.token_ids) - 1)

    def count_overrun(self) -> None:
        """Puts down what has run, or runs in steps in flight, behind the answer of one that its client ends: whatever
        it has beyond the tokens that come before its last one. It may run, wait or have been preempted, so its place
        does not tell."""
        stats = self.stats
        held = stats.num_cached_tokens + stats.num_spared_tokens + stats.num_fresh_tokens
        stats.num_overrun_tokens = held - (len(self.token_ids) - 1)

    @property
    def max_remaining_tokens(self) -> int:
        """Tokens it may still generate, at least 1 while it is live."""
        return self.max_total_tokens - len(self.token_ids)

    @property
    def has_run(self) -> bool:
        """Whether it has been admitted before."""
        return self.stats.first_scheduled_s is not None

    @property
    def arrival_s(self) -> float:
        return self.stats.arrival_s

    def append(self, token_id: int) -> bool:
        """Adds a sampled token and says whether it ends the request.

        The order is fixed: end of sequence, stop ids, length, repetition. The length cap holds even below `min_tokens`;
        the sampler masks ids that stop until then, so the first two cannot come early.
        """
        self.token_ids.append(token_id)
        if token_id not in self._ending_token_ids and len(self.token_ids) < self.max_total_tokens:
            return self._repetition is not None and self._repeats(self._repetition, token_id)
        if token_id in self._eos_token_ids:
            self.finish_reason = FinishReason.STOP
        elif token_id in self._stop_token_ids:
            self.finish_reason = FinishReason.STOP
            self.stop_token_id = token_id
        else:
            self.finish_reason = FinishReason.LENGTH
        return True

    def _repeats(self, repetition: RepetitionDetector, token_id: int) -> bool:
        """Whether a repetition ends the request; below `min_tokens` none does, and one that lasts does then."""
        found = repetition.push(token_id) and self.num_output_tokens >= self.request.params.min_tokens
        if found:
            self.finish_reason = FinishReason.REPETITION
        return found

    def run(self, step: int, num_scheduled: int, num_drafts: int, part: float) -> int:
        """Books a step that computes the next `num_scheduled` tokens, and yields one if that is all there are; and one
        more for each of the drafts behind them that is right, of which all are counted.

        Args:
            part: of the rows of the step.

        Returns:
            How many of these had been computed before and were lost to preemption.

            |<-- computed at some time: _most_computed -->|
                     |<--------- this step --------->|          num_computed before .. after
                     |<----- recomputed ------>|
        """
        start, stats = self.num_computed, self.stats
        end = self.num_computed = start + num_scheduled
        num_sampled = 0
        if end == len(self.token_ids) + self.num_pending:
            num_sampled = 1 + num_drafts
            self.num_pending += num_sampled
        if num_drafts:
            self.num_computed += num_drafts
        stats.num_steps += 1
        stats.num_computed_tokens += num_scheduled
        recomputed = 0
        if start == self._most_computed:
            self._most_computed = end
        else:
            recomputed = max(0, min(end, self._most_computed) - start)
            self._most_computed = max(self._most_computed, end)
            stats.num_recomputed_tokens += recomputed
        book = self.book
        if start == book.row_end and num_scheduled == 1 and not (num_drafts or recomputed):
            book.lengthen(step, end, part)
        else:
            book.planned(step, start, num_scheduled, num_drafts, num_sampled, recomputed, part)
        return recomputed

    def roll_back(self, num_drafts: int, num_wrong: int) -> None:
        """The step that has just landed was booked with so many drafts, and so many of them came to nothing."""
        self.num_pending -= num_drafts
        self.num_computed -= num_wrong
        self._most_computed = self.num_computed

    def count_loaded_tokens(self, block_size: int) -> None:
        """Puts down which of the computed tokens have come from which tier; after the first admission."""
        for name in self.blocks.hashes[: self.num_computed // block_size]:
            tier = self.loaded.get(name)
            if tier is not None:
                totals = self.stats.num_loaded_tokens
                totals[tier] = totals.get(tier, 0) + block_size

    def add_prompt_logprobs(self, rows: list[LogprobRow]) -> None:
        """Collects rows until the first output takes them; what a resumed request computes again is dropped."""
        if not self.has_emitted:
            self._prompt_logprobs += rows

    def take_prompt_logprobs(self) -> list[LogprobRow | None] | None:
        """All rows, entry 0 None; None where the request did not ask."""
        return None if self.request.params.prompt_logprobs is None else self._prompt_logprobs

    def preempt(self, now_s: float) -> None:
        """Back to nothing computed; known tokens stay, what steps in flight yield is given up. Its blocks are the
        caller's business."""
        self.status = RequestStatus.PREEMPTED
        self.book.clock.wait(Phase.PREEMPTED, WaitReason.STEP, now_s)
        self.book.curve.hold(0, now_s)
        self.num_kv_waits = 0
        self.num_computed = self.num_pending = 0
        self.stats.num_preemptions += 1
        if len(self.stats.preempted_s) < MAX_PREEMPTION_TIMES:
            self.stats.preempted_s.append(now_s)
        self._prompt_logprobs = [None]

    def come_back(self) -> None:
        """It runs again, from what it has found in the cache."""
        stats = self.stats
        stats.num_resumed_cached_tokens += self.num_computed
        stats.num_spared_tokens += max(0, self.num_computed - self._most_computed)

    def finish(self, reason: FinishReason, now_s: float | None) -> None:
        """Enters the final state. Its blocks are the caller's business."""
        self.status = RequestStatus.FINISHED
        self.finish_reason = reason
        self.stats.finished_s = now_s
        if now_s is not None:
            self.book.clock.stop(now_s)
            self.book.curve.hold(0, now_s)

    def ledger(self, now_s: float | None = None) -> RequestStats:
        """A copy of the stats as they are now.

        Args:
            now_s: with the account up to then. None: without.
        """
        return msgspec.structs.replace(
            self.stats,
            account=None if now_s is None else self.book.account(self.stats.finished_s or now_s),
            num_output_tokens=self.num_output_tokens,
            max_blocks=self.blocks.max_blocks,
            num_accepted_by_position=list(self.stats.num_accepted_by_position),
            preempted_s=list(self.stats.preempted_s),
        )


def max_total_tokens(request: GenerateRequest, max_model_len: int) -> int:
    """Prompt + outputs at which a request ends, whatever its tokens are. The vector of a pooled one counts as an
    output, but takes no place in the context."""
    if request.pooling is not None:
        return len(request.prompt_token_ids) + 1
    wanted = request.params.max_tokens
    if wanted is None:
        return max_model_len
    return min(len(request.prompt_token_ids) + wanted, max_model_len)
