"""A stand-in for model and sampler: deterministic tokens, a simulated KV memory, and no mercy for a wrong plan.

Tokens are a pure function of the request's known tokens and its seed, so whatever the batch, chunking, cache or
preemption, a request must get the tokens it gets alone. The KV memory stores for every slot a digest of the whole
prefix that was computed into it, and the attention of a token compares every earlier position with what must stand
there: a wrong, stale or half-filled block does not change a probability somewhere, it raises.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from octavo.execution.protocols import Bytes
from octavo.kv.spec import KVLayout
from octavo.request.outputs import LogprobRow
from octavo.request.params import SamplingParams
from octavo.request.structured import StructuredSpec
from octavo.scheduling.plan import BlockCopy, BlockSwap, NewRequestData, StepPlan, StepResult

UInt64 = npt.NDArray[np.uint64]
Int64 = npt.NDArray[np.int64]

TokenScript = Callable[[Sequence[int], int, SamplingParams], int]
"""(known tokens, number of prompt tokens, params) -> the next token."""
CompletionScript = Callable[[Sequence[int], int, SamplingParams], bool]
"""(known tokens, number of prompt tokens, params) -> whether an answer of a given shape is whole with the last of them,
and nothing may follow."""
FaultScript = Callable[[str, int], str | None]
"""(request id, its tokens in the cache after this step) -> what goes wrong with its part of the step, if anything."""

DraftScript = Callable[[Sequence[int], Sequence[int]], Sequence[int]]
"""(known tokens, the tokens that will come) -> the drafts for as many places, or fewer."""

VECTOR_SIZE = 8
"""Numbers of every vector, whatever `dimensions` says."""
_MASK = 2**64 - 1
_NOTHING = 0
"""Content of a slot that was never written."""
_GARBAGE = 1
"""Content written by a part of a step that failed, or that read such content."""


class PlanViolationError(RuntimeError):
    """A plan that no runner could execute, or that makes a request read KV which is not its own."""


def never_complete(token_ids: Sequence[int], num_prompt_tokens: int, params: SamplingParams) -> bool:
    """The default `CompletionScript`."""
    return False


def no_drafts(token_ids: Sequence[int], upcoming: Sequence[int]) -> Sequence[int]:
    """The default `DraftScript`."""
    return ()


def every_grammar(spec: StructuredSpec) -> bool:
    """There is one for every shape."""
    return True


def no_faults(request_id: str, num_computed: int) -> str | None:
    """The default `FaultScript`."""
    return None


def _mix(value: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection on 64 bits that leaves no pattern."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _extend(digest: int, token_id: int) -> int:
    """Digest of a prefix one token longer; never one of the two reserved contents."""
    return max(_mix((digest + 0x9E3779B97F4A7C15 * (token_id + 1)) & _MASK), _GARBAGE + 1)


class _Sequence:
    """What the stand-in holds of one request between steps, as a runner would."""

    def __init__(self, data: NewRequestData) -> None:
        self.params = data.params
        self.num_prompt_tokens = data.num_prompt_tokens
        self.stopping = frozenset(data.eos_token_ids) | frozenset(data.params.stop_token_ids)
        self.token_ids: list[int] = []
        self.digests = array("Q")
        self.tables = [list(ids) for ids in data.block_ids]
        self.starts: list[int] = []
        """First positions of its last parts of steps, as many as are looked at."""
        self.num_computed: int | None = None
        self.num_wrong = 0
        """Drafts planned for its last part of a step that came to nothing."""
        self.last_step = -1
        self.pooling = data.pooling
        self.pooled_digest = 0
        """Sum of the digests at the positions run so far."""
        self.num_pooled = 0
        for token_id in data.token_ids:
            self.append(token_id)

    def append(self, token_id: int) -> None:
        self.digests.append(_extend(self.digests[-1] if self.digests else 0, token_id))
        self.token_ids.append(token_id)

    def truncate(self, num_tokens: int) -> None:
        """Forgets the tokens behind the first so many."""
        del self.token_ids[num_tokens:], self.digests[num_tokens:]


class _Span(NamedTuple):
    """Positions that run for a request: `[start, known)` hold tokens that are known, `[known, stop)` drafts."""

    start: int
    known: int
    stop: int
    num_planned_drafts: int


class _Sampled(NamedTuple):
    """Tokens of one request, their logprobs where asked for, and logprobs of prompt tokens."""

    token_ids: list[int]
    rows: list[LogprobRow]
    prompt_rows: list[LogprobRow]


class ScriptedExecutor:
    """A `StepExecutor` without a model. Of the sampling parameters it honours seed, min_tokens and both logprobs, of
    the pooling parameters which positions count."""

    def __init__(
        self,
        layout: KVLayout,
        *,
        vocab_size: int = 32000,
        script: TokenScript | None = None,
        faults: FaultScript = no_faults,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
        max_in_flight: int = 1,
        completes: CompletionScript = never_complete,
        has_grammar: Callable[[StructuredSpec], bool] = every_grammar,
        drafts: DraftScript = no_drafts,
    ) -> None:
        """
        Args:
            script: gives the tokens; None: a hash of known tokens and seed.
            completes: where answers of a given shape end without an end token.
            has_grammar: whether the grammar of such an answer is there; nobody may be taken in without.
            faults: parts of steps that fail.
            drafts: what is tried where a plan has room for drafts. Tokens are given for all that are right, those
                behind an end of the request included.
            max_num_seqs, max_num_batched_tokens: limits that plans must keep, where given.
            max_in_flight: as the scheduler's. Plans made ahead do not know yet what came of the steps before: they may
                read what these have spoiled, and swaps come so many steps later.
        """
        self.layout = layout
        self._vocab_size = vocab_size
        self._script = script
        self._faults = faults
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._max_in_flight = max_in_flight
        self._completes = completes
        self._has_grammar = has_grammar
        self._drafts = drafts
        self._next_step = 0
        self._sequences: dict[str, _Sequence] = {}
        num_slots = layout.num_blocks * layout.block_size
        self._kv: UInt64 = np.full(num_slots, _NOTHING, np.uint64)
        self._written_in: Int64 = np.full(num_slots, -1, np.int64)
        """Slot -> last step that wrote it."""
        self._group_marks = [np.uint64(_mix(group + 1)) for group in range(len(layout.groups))]
        """Group -> pattern added to its contents, so that a block of another group never passes for one's own."""

    @property
    def held_request_ids(self) -> frozenset[str]:
        """Requests that were planned and neither finished nor preempted since, as far as plans have told."""
        return frozenset(self._sequences)

    def execute(self, plan: StepPlan) -> StepResult:
        """Runs one plan; see `StepExecutor.execute`.

        Raises:
            PlanViolationError: the plan is not executable, or a request would read what is not its own.
        """
        self._check_shape(plan)
        self._apply(plan)
        spans = [self._span(plan, index) for index in range(len(plan.request_ids))]
        for copy in plan.block_copies:
            self._copy(copy)
        errors = self._write_all(plan, spans)
        misled = self._mislead(plan, spans)
        results = [
            self._sample(request_id, span, is_misled=request_id in misled)
            for request_id, span in zip(plan.request_ids, spans, strict=True)
        ]
        vectors = self._pool(plan, spans, misled)
        errors = {name: "it reads garbage" for name, shows in misled.items() if shows} | errors
        drafted = [span.stop - span.known for span in spans]
        return self._result(plan, results, vectors, errors, drafted)

    def close(self) -> None:
        """Forgets everything; idempotent."""
        self._sequences.clear()

    # ---- blocks for stores, see `KVMemory`

    def block_bytes(self, group: int) -> int:
        """See `KVMemory.block_bytes`."""
        return self.layout.block_size * self._kv.itemsize

    def read_block(self, group: int, block_id: int, out: Bytes) -> None:
        """See `KVMemory.read_block`."""
        out[:] = self._block(block_id).view(np.uint8)

    def write_block(self, group: int, block_id: int, data: Bytes) -> None:
        """See `KVMemory.write_block`."""
        self._block(block_id)[:] = data.view(np.uint64)
        self._written_in[block_id * self.layout.block_size :][: self.layout.block_size] = -1

    def _block(self, block_id: int) -> UInt64:
        size = self.layout.block_size
        return self._kv[block_id * size : (block_id + 1) * size]

    # ---- the plan

    def _check_shape(self, plan: StepPlan) -> None:
        _demand(plan.step == self._next_step, f"step {plan.step} follows step {self._next_step - 1}")
        self._next_step += 1
        columns = (plan.num_scheduled_tokens, plan.num_computed_tokens, plan.new_block_ids)
        _demand(all(len(column) == len(plan.request_ids) for column in columns), "columns differ in length")
        _demand(len(plan.request_ids) > 0, "the plan is empty")
        _demand(len(set(plan.request_ids)) == len(plan.request_ids), "a request is planned twice")
        _demand(min(plan.num_scheduled_tokens) >= 1, "a planned request has no token")
        budget = self._max_num_batched_tokens
        _demand(budget is None or plan.num_tokens <= budget, f"{plan.num_tokens} tokens exceed the budget {budget}")
        drafts = plan.num_draft_tokens or (0,) * len(plan.request_ids)
        _demand(len(drafts) == len(plan.request_ids), "columns differ in length")
        fits = all(0 <= some < count for some, count in zip(drafts, plan.num_scheduled_tokens, strict=True))
        _demand(fits, "a planned request has drafts only")

    def _apply(self, plan: StepPlan) -> None:
        """Brings the held sequences up to the plan."""
        self._forget(plan.finished_request_ids)
        self._forget(plan.preempted_request_ids)
        for swap in plan.block_swaps:
            self._swap(plan, swap)
        for data in plan.new_requests:
            self._take_in(plan, data)
        limit = self._max_num_seqs
        _demand(limit is None or len(self._sequences) <= limit, f"more than {limit} requests are held")
        new_ids = {data.request_id for data in plan.new_requests}
        columns = zip(plan.request_ids, plan.new_block_ids, plan.num_computed_tokens, strict=True)
        for request_id, block_ids, num_computed in columns:
            _demand(request_id in self._sequences, f"{request_id} is planned but was never introduced")
            tables = self._sequences[request_id].tables
            _demand(len(block_ids) == len(tables), f"{request_id}: block ids for {len(block_ids)} groups")
            used = -(-num_computed // self.layout.block_size)
            for table, ids in zip(tables, block_ids, strict=True):
                _demand(len(table) >= used, f"{request_id}: {len(table)} blocks for {num_computed} computed tokens")
                if request_id not in new_ids:
                    table[used:] = ids

    def _forget(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            _demand(request_id in self._sequences, f"{request_id} ended or was preempted, but is not held")
            del self._sequences[request_id]

    def _swap(self, plan: StepPlan, swap: BlockSwap) -> None:
        _demand(swap.request_id in plan.request_ids, f"{swap} is for a request that is not in the plan")
        _demand(swap.request_id in self._sequences, f"{swap} is for a request that is not held")
        self._sequences[swap.request_id].tables[swap.group][swap.position] = swap.block_id

    def _take_in(self, plan: StepPlan, data: NewRequestData) -> None:
        _demand(data.request_id in plan.request_ids, f"{data.request_id} is new but not planned")
        _demand(data.request_id not in self._sequences, f"{data.request_id} is new but already held")
        spec = data.params.structured_outputs
        _demand(spec is None or self._has_grammar(spec), f"{data.request_id} runs, but its grammar is not there")
        _demand(1 <= data.num_prompt_tokens <= len(data.token_ids), f"{data.request_id} has no such prompt")
        index = plan.request_ids.index(data.request_id)
        _demand(not any(plan.new_block_ids[index]), f"{data.request_id} gets its new blocks twice")
        self._sequences[data.request_id] = _Sequence(data)

    def _span(self, plan: StepPlan, index: int) -> _Span:
        """What runs for a request, checked against what is held of it, with its drafts behind its tokens."""
        request_id = plan.request_ids[index]
        sequence = self._sequences[request_id]
        planned = plan.num_draft_tokens[index] if plan.num_draft_tokens else 0
        count, num_known = plan.num_scheduled_tokens[index] - planned, len(sequence.token_ids)
        known = self._known_end(plan, index, count, num_known)
        start = known - count
        expected = sequence.num_computed
        _demand(expected is None or start == expected, f"{request_id}: {start} computed tokens, not {expected}")
        _demand(known <= num_known, f"{request_id}: runs to {known} of {num_known} tokens")
        _demand(not planned or known == num_known, f"{request_id}: drafts behind {known} of {num_known} tokens")
        sequence.starts = [*sequence.starts, start][-self._max_in_flight :]
        planned_end = plan.num_computed_tokens[index] + plan.num_scheduled_tokens[index]
        for group, table in enumerate(sequence.tables):
            self._check_table(request_id, group, table, sequence.starts[0], start, planned_end)
        if planned:
            for token_id in self._drafts(sequence.token_ids, self._upcoming(sequence, planned))[:planned]:
                sequence.append(token_id)
        return _Span(start, known, max(known, len(sequence.token_ids)) if planned else known, planned)

    def _known_end(self, plan: StepPlan, index: int, count: int, num_known: int) -> int:
        """Where the known tokens of a part end. A plan made while drafts were in flight has counted them all."""
        sequence = self._sequences[plan.request_ids[index]]
        end = plan.num_computed_tokens[index] + count
        in_flight = self._max_in_flight > 1 and sequence.last_step == plan.step - 1
        if end > num_known and in_flight and end - num_known == sequence.num_wrong:
            return num_known
        return end

    def _upcoming(self, sequence: _Sequence, count: int) -> list[int]:
        """The next tokens."""
        num_known = len(sequence.token_ids)
        for _ in range(count):
            sequence.append(self._next_token(sequence, sequence.digests[-1]))
        upcoming = sequence.token_ids[num_known:]
        sequence.truncate(num_known)
        return upcoming

    def _first_needed(self, group: int, position: int) -> int:
        """First position that a row at `position` reads in a group."""
        return self.layout.groups[group].spec.first_needed(position)

    def _check_table(self, request_id: str, group: int, table: list[int], settled: int, start: int, stop: int) -> None:
        """Entries that rows `[start, stop)` need name blocks of their own. Those out of reach when the last full block
        before position `settled` filled are the null block, and between these two there may be some of either kind."""
        size = self.layout.block_size
        needed = -(-stop // size)
        _demand(len(table) == needed, f"{request_id}: {len(table)} blocks for {stop} tokens, not {needed}")
        first = self._first_needed(group, settled // size * size) // size
        _demand(not any(table[:first]), f"{request_id}: blocks before entry {first} are out of reach: {table}")
        held = [block for block in table[first : self._first_needed(group, start) // size] if block]
        held += table[self._first_needed(group, start) // size :]
        if len(set(held)) < len(held) or not 0 < min(held) <= max(held) < self.layout.num_blocks:
            raise PlanViolationError(f"{request_id}: blocks that are twice in the table or do not exist: {table}")

    # ---- the simulated memory

    def _slots(self, table: list[int], start: int, stop: int) -> Int64:
        """Slots of positions `[start, stop)`."""
        size = self.layout.block_size
        positions = np.arange(start, stop)
        return np.asarray(table, np.int64)[positions // size] * size + positions % size

    def _copy(self, copy: BlockCopy) -> None:
        _demand(copy.source != copy.target and 0 < copy.num_tokens <= self.layout.block_size, f"{copy} is no copy")
        size = self.layout.block_size
        source, target = copy.source * size, copy.target * size
        content = self._kv[source : source + copy.num_tokens]
        _demand(bool(np.all(content > _GARBAGE)), f"{copy} copies what was never computed")
        self._kv[target : target + copy.num_tokens] = content

    def _write_all(self, plan: StepPlan, spans: list[_Span]) -> dict[str, str]:
        """Stores K and V of all rows before any row reads; returns the faults."""
        errors: dict[str, str] = {}
        for request_id, (start, known, stop, _) in zip(plan.request_ids, spans, strict=True):
            problem = self._faults(request_id, known)
            if problem is not None:
                errors[request_id] = problem
            self._write(request_id, start, stop, garbage=problem is not None)
        return errors

    def _write(self, request_id: str, start: int, stop: int, *, garbage: bool) -> None:
        sequence = self._sequences[request_id]
        for group, table in enumerate(sequence.tables):
            slots = self._slots(table, start, stop)
            content = self._content(sequence, group, start, stop)
            again = self._written_in[slots] == self._next_step
            clash = again & (self._kv[slots] != content)
            _demand(not clash.any(), f"{request_id} writes slots {slots[clash]} that another request writes, too")
            self._kv[slots] = content
            self._written_in[slots] = self._next_step
        if garbage:
            self._spoil(sequence, start, stop)

    def _spoil(self, sequence: _Sequence, start: int, stop: int) -> None:
        """Turns what was written at positions `[start, stop)` in this step into garbage."""
        for table in sequence.tables:
            self._kv[self._slots(table, start, stop)] = _GARBAGE

    def _content(self, sequence: _Sequence, group: int, start: int, stop: int) -> UInt64:
        """What must stand in the cache at positions `[start, stop)`."""
        digests = np.frombuffer(sequence.digests, np.uint64)[start:stop]
        content: UInt64 = np.maximum(digests ^ self._group_marks[group], np.uint64(_GARBAGE + 1))
        return content

    def _reads_garbage(self, request_id: str, start: int, stop: int) -> bool:
        """Verifies all positions that rows `[start, stop)` read. True if some hold garbage that the plan could not know
        of: written in this step, or in one that was in flight when it was made."""
        sequence = self._sequences[request_id]
        found_garbage = False
        for group, table in enumerate(sequence.tables):
            first = self._first_needed(group, start)
            slots = self._slots(table, first, stop)
            wrong = self._kv[slots] != self._content(sequence, group, first, stop)
            if not wrong.any():
                continue
            recent = self._written_in[slots] > self._next_step - self._max_in_flight
            garbage = (self._kv[slots] == _GARBAGE) & recent
            lost = first + np.flatnonzero(wrong & ~garbage)
            _demand(not lost.size, f"{request_id} reads KV that is not its own at positions {lost} of group {group}")
            found_garbage = True
        return found_garbage

    def _mislead(self, plan: StepPlan, spans: list[_Span]) -> dict[str, bool]:
        """Garbage begets garbage: spoils what requests write that read some. Gives those, and whether it shows: some
        garbage is no number and makes its reader fail, some is a number like others."""
        misled: dict[str, bool] = {}
        for request_id, (start, known, stop, _) in zip(plan.request_ids, spans, strict=True):
            if self._reads_garbage(request_id, start, stop):
                sequence = self._sequences[request_id]
                self._spoil(sequence, start, stop)
                misled[request_id] = sequence.digests[known - 1] % 2 == 1
        return misled

    # ---- tokens

    def _sample(self, request_id: str, span: _Span, *, is_misled: bool) -> _Sampled:
        """What comes of the part of one request; other tokens if it was misled."""
        sequence = self._sequences[request_id]
        prompt_rows = self._prompt_rows(sequence, span.start, span.known)
        drafts = sequence.token_ids[span.known :] if span.stop > span.known else []
        if drafts:
            sequence.truncate(span.known)
        sequence.num_computed, sequence.num_wrong, sequence.last_step = span.known, 0, self._next_step - 1
        if span.known < len(sequence.token_ids) or sequence.pooling is not None:
            return _Sampled([], [], prompt_rows)
        sampled = _Sampled([], [], prompt_rows)
        for draft in [*drafts, None]:
            self._sample_one(sequence, sampled, is_misled=is_misled)
            fails_next = self._faults(request_id, len(sequence.token_ids)) is not None  # and is seen next, as the first
            if sampled.token_ids[-1] != draft or is_misled or fails_next or self._is_whole(request_id):
                break
        sequence.num_computed += len(sampled.token_ids) - 1
        sequence.num_wrong = span.num_planned_drafts - len(sampled.token_ids) + 1
        return sampled

    def _sample_one(self, sequence: _Sequence, sampled: _Sampled, *, is_misled: bool) -> None:
        digest = sequence.digests[-1] ^ (_MASK if is_misled else 0)
        token_id = self._next_token(sequence, digest)
        sequence.append(token_id)
        sampled.token_ids.append(token_id)
        if sequence.params.logprobs is not None:
            sampled.rows.append(self._row(token_id, sequence.params.logprobs, digest))

    def _is_whole(self, request_id: str) -> bool:
        sequence = self._sequences[request_id]
        if sequence.params.structured_outputs is None:
            return False
        return self._completes(sequence.token_ids, sequence.num_prompt_tokens, sequence.params)

    def _next_token(self, sequence: _Sequence, digest: int) -> int:
        if self._script is not None:
            return self._script(sequence.token_ids, sequence.num_prompt_tokens, sequence.params)
        token_id = _mix(digest ^ _mix(sequence.params.seed or 0)) % self._vocab_size
        masked = len(sequence.token_ids) - sequence.num_prompt_tokens < sequence.params.min_tokens
        while masked and token_id in sequence.stopping:
            token_id = (token_id + 1) % self._vocab_size
        return token_id

    def _prompt_rows(self, sequence: _Sequence, start: int, stop: int) -> list[LogprobRow]:
        """The row of position p predicts token p + 1, for as long as that is a prompt token."""
        count = sequence.params.prompt_logprobs
        if count is None:
            return []
        end = min(stop, sequence.num_prompt_tokens - 1)
        return [self._row(sequence.token_ids[p + 1], count, sequence.digests[p]) for p in range(start, end)]

    def _row(self, token_id: int, count: int, digest: int) -> LogprobRow:
        """A made-up row: the token, then `count` others, with falling logprobs."""
        others = [(token_id + 1 + i) % self._vocab_size for i in range(count)]
        top = -(digest % 1024) / 256.0
        return LogprobRow([token_id, *others], [top - i for i in range(count + 1)], 1)

    # ---- vectors

    def _pool(self, plan: StepPlan, spans: list[_Span], misled: dict[str, bool]) -> dict[str, bytes]:
        """Vectors of the pooled requests whose prompts are finished; other ones if they were misled."""
        vectors: dict[str, bytes] = {}
        for request_id, (start, _, stop, _) in zip(plan.request_ids, spans, strict=True):
            sequence = self._sequences[request_id]
            if sequence.pooling is None:
                continue
            spoiled = _MASK if request_id in misled else 0
            counting = [digest ^ spoiled for digest in sequence.digests[start:stop]]
            sequence.pooled_digest = (sequence.pooled_digest + sum(counting)) & _MASK
            sequence.num_pooled += len(counting)
            if stop == sequence.num_prompt_tokens:
                is_mean = sequence.pooling.needs_every_position
                _demand(
                    not is_mean or sequence.num_pooled == stop, f"{request_id}: ran {sequence.num_pooled} of {stop}"
                )
                vectors[request_id] = vector_of(sequence.pooled_digest if is_mean else counting[-1])
        return vectors

    def _result(
        self,
        plan: StepPlan,
        results: list[_Sampled],
        vectors: dict[str, bytes],
        errors: dict[str, str],
        drafted: list[int],
    ) -> StepResult:
        good = [request_id not in errors for request_id in plan.request_ids]
        tokens = [tuple(one.token_ids) if ok else () for one, ok in zip(results, good, strict=True)]
        rows = [tuple(one.rows) if one.rows and ok else None for one, ok in zip(results, good, strict=True)]
        prompt_rows = {
            request_id: one.prompt_rows
            for request_id, one, ok in zip(plan.request_ids, results, good, strict=True)
            if one.prompt_rows and ok
        }
        return StepResult(
            step=plan.step,
            token_ids=tuple(tokens),
            num_draft_tokens=tuple(drafted) if any(drafted) else (),
            logprobs=tuple(rows) if any(row is not None for row in rows) else (),
            prompt_logprobs=prompt_rows,
            vectors={request_id: vector for request_id, vector in vectors.items() if request_id not in errors},
            completed_request_ids=tuple(
                name for name, token in zip(plan.request_ids, tokens, strict=True) if token and self._is_whole(name)
            ),
            errors=errors,
        )


def vector_of(digest: int, size: int = VECTOR_SIZE) -> bytes:
    """A made-up vector, as little-endian float32."""
    numbers = [_mix((digest + index) & _MASK) / 2.0**64 - 0.5 for index in range(size)]
    return np.array(numbers, "<f4").tobytes()


def _demand(holds: bool, problem: str) -> None:
    if not holds:
        raise PlanViolationError(problem)
