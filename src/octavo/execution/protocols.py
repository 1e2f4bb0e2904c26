"""The contracts of the executing side: what runs a program, what turns logits into tokens, what runs a plan."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from octavo.kv.record import BlockRecord, Tier
from octavo.kv.spec import KVLayout
from octavo.kv.transfer import BlockName, TransferEvent, TransferPlan
from octavo.request.outputs import LogprobRow
from octavo.request.params import SamplingParams
from octavo.request.profile import OpInfo
from octavo.request.ready import ReadyEvent
from octavo.request.structured import StructuredSpec
from octavo.scheduling.plan import BlockCopy, NewRequestData, StepPlan, StepResult

Int32 = npt.NDArray[np.int32]
Float32 = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


@dataclass
class StepBatch:
    """One step as arrays. T tokens of S sequences, G cache groups, R rows whose logits are wanted.

    Rows of sequence s are `seq_starts[s]:seq_starts[s + 1]`, at consecutive positions ending at
    `context_lens[s] - 1`.
    """

    token_ids: Int32
    """[T]"""
    positions: Int32
    """[T]"""
    seq_starts: Int32
    """[S + 1]"""
    context_lens: Int32
    """[S] tokens in the cache after this step."""
    block_tables: Int32
    """[G, S, max_blocks] block ids; entries past the context are 0."""
    slot_mapping: Int32
    """[G, T] `block_id * block_size + offset` of each token."""
    logit_rows: Int32
    """[R] indices into the T tokens, ascending."""
    block_copies: Sequence[BlockCopy] = ()


class KVMemory(Protocol):
    """The bytes of device blocks, for stores that copy them.

    Both calls may come from any thread beside a running step: whoever plans transfers sees to it that no step writes
    a block that is read here, and none touches one that is written. A block is one contiguous run of bytes, equal for
    every engine of equal fingerprint.
    """

    def block_bytes(self, group: int) -> int:
        """Bytes of one block of a cache group, over all its layers."""
        ...

    def read_block(self, group: int, block_id: int, out: Bytes) -> None:
        """Copies a device block into `out`, `[block_bytes(group)]`."""
        ...

    def write_block(self, group: int, block_id: int, data: Bytes) -> None:
        """Fills a device block from `data`, `[block_bytes(group)]`."""
        ...


class ProgramExecutor(KVMemory, Protocol):
    """Runs one program over one KV memory. Built once per model; holds weights, KV and scratch."""

    layout: KVLayout
    max_rows: int
    """Most logit rows of one call."""

    def run(self, batch: StepBatch) -> Float32:
        """Runs the step: block copies, then all ops.

        Returns:
            Logits `[R, vocab_size]`, valid until the next call.
        """
        ...

    def logits(self, rows: Int32) -> Float32:
        """Runs the row ops again for other rows (indices into the T tokens) of the batch just run.

        For prompt logprobs: many rows, taken in pieces of at most `max_rows` so that memory stays bounded.

        Returns:
            Logits `[len(rows), vocab_size]`, valid until the next call of `run` or `logits`.
        """
        ...

    def hidden(self, rows: Int32) -> Float32:
        """Final hidden states, after the last norm, of any rows of the batch just run. No logits are computed.

        Args:
            rows: at most `max_rows` indices into the T tokens.

        Returns:
            `[len(rows), hidden_size]`, valid until the next call of `run`, `logits` or `hidden`. A row has the same
            bits whatever the others.
        """
        ...

    def broken_rows(self) -> Int32:
        """Which of the T tokens of the batch just run came out as no number (NaN), ascending. What these wrote into
        the cache may be garbage, and nothing that follows them in their sequences can be trusted."""
        ...

    def output(self, role: str) -> Float32:
        """What the last call left in an output of the program: `[tokens or rows, width]`, valid until the next call."""
        ...

    def close(self) -> None:
        """Releases memory and threads; idempotent."""
        ...


class DraftExecutor(ProgramExecutor, Protocol):
    """Runs a program that has inputs beside the tokens: one that goes on from what another program has computed."""

    def fill(self, role: str, rows: Float32) -> None:
        """Brings the rows `[tokens, width]` of an input, one for each token of the steps run from now on."""
        ...


@dataclass
class TokenMasks:
    """Which tokens the rows of a sampling call may have, where not all are allowed.

    Bit `i % 32` of word `i // 32` is token i; 1 is allowed. Bits at and behind the valid vocabulary mean nothing.
    """

    words: Int32
    """[masks, ceil(valid_vocab_size / 32)]"""
    rows: Int32
    """[rows] which of the masks a row of logits has; -1: none."""


@dataclass
class SampledRows:
    """Tokens of a sampling call, one per row."""

    token_ids: Int32
    """[rows]"""
    logprobs: list[LogprobRow | None]
    """One entry per row; None where the request did not ask. Empty list: no row asked."""
    errors: dict[int, str] = field(default_factory=dict)
    """row -> what is wrong with that row alone (NaN logits, no token left to sample); its token id is -1."""
    unfit: list[int] = field(default_factory=list)
    """Of these, rows whose own request asks for what no token fulfils: a shape that leads nowhere."""
    completed: list[int] = field(default_factory=list)
    """Rows whose answers are whole, where nothing could follow but an end token that they may not have."""


class Sampler(Protocol):
    """Turns logits into tokens. Owns the per-slot sampling state (parameters, token counts, noise position)."""

    def add(
        self,
        slot: int,
        params: SamplingParams,
        eos_token_ids: Sequence[int],
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
    ) -> None:
        """Starts a request in a slot; `output_token_ids` is non-empty after preemption."""
        ...

    def remove(self, slot: int) -> None:
        """Forgets the request in a slot."""
        ...

    def prepare(self, slots: Int32, drafts: Int32 | None = None) -> None:
        """These rows will be sampled next (or verified, with `drafts`): what can be done for it while their logits are
        computed may begin now. The call returns at once. It may be made again without one of `sample` or `verify` in
        between, for other slots."""
        ...

    def sample(self, logits: Float32, slots: Int32, masks: TokenMasks | None = None) -> SampledRows:
        """Samples row i of logits `[rows, vocab_size]` for the request in `slots[i]` and counts the token as output.

        Masks come before everything else that draws; logprobs are those of the logits without them. A row without a
        mask has the same bits as in a call without masks."""
        ...

    def num_worth_running(self, slot: int, drafts: Sequence[int]) -> int:
        """How many of these drafts, from the first one on, could be what is drawn for the slot, as far as that is known
        without logits; a row behind the others would tell nothing."""
        ...

    def verify(self, logits: Float32, slots: Int32, drafts: Int32, masks: TokenMasks | None = None) -> SampledRows:
        """Samples like `sample`, as many tokens of each slot as its drafts have right, and the one behind them.

        A slot has a run of rows: that of its last token, and one for each of its drafts, which `drafts[i]` names ahead:
        of row i + 1; -1 for the last row of a run. Each row is drawn as if all before it were known and it came alone.
        Rows behind the first one that draws another token than its draft, or one that ends the request, do not count:
        token id -1, no logprobs, no error. Neither does a row that fails, if it is not the first of its run.

            drafts     7  4  9 -1
            drawn      7  4  2           three tokens; the last row tells nothing
        """
        ...

    def score(self, logits: Float32, targets: Int32, num_logprobs: int) -> list[LogprobRow]:
        """Logprobs of given target tokens `[rows]` (prompt logprobs): no sampling state is touched."""
        ...


@dataclass(frozen=True)
class SlotArrays:
    """What the runner keeps of its live requests, one row per slot: views that follow it, not to be written."""

    tokens: Int32
    """[slots, max_len] known tokens from position 0; those behind `num_tokens` mean nothing."""
    num_tokens: Int32
    """[slots]"""
    block_tables: Int32
    """[G, slots, max_blocks]"""
    block_size: int


class RowStates(Protocol):
    """What the rows of the batch just run have come to; the executor of the model is one."""

    max_rows: int

    def hidden(self, rows: Int32) -> Float32:
        """See `ProgramExecutor.hidden`."""
        ...

    def output(self, role: str) -> Float32:
        """See `ProgramExecutor.output`."""
        ...


@dataclass(frozen=True)
class RanStep:
    """A step, or a part of it, as it ran, and what was drawn."""

    batch: StepBatch
    """All its rows: drafts too, and those of requests that yield no tokens."""
    slots: Sequence[int]
    """[S]"""
    sampling: Int32
    """[R] sequence of each logit row, ascending."""
    token_ids: Int32
    """[R] drawn in that row; -1: the row does not count, or failed."""
    states: RowStates
    """Of this batch, until the call that gets them returns."""

    @cached_property
    def drawn(self) -> dict[int, list[int]]:
        """Slot -> the tokens drawn for it, where there are any: its right drafts, and the token behind them."""
        drawn: dict[int, list[int]] = {}
        for sequence, token_id in zip(self.sampling.tolist(), self.token_ids.tolist(), strict=True):
            if token_id >= 0:
                drawn.setdefault(self.slots[sequence], []).append(token_id)
        return drawn

    @cached_property
    def num_kept(self) -> Int32:
        """[S] rows of each sequence, from its first on, whose tokens stand: all but those of drafts that were wrong.

        rows     known | known | draft | draft | draft        3 of 5 are kept
        drawn            draft | other |   -   |   -
        """
        num_rows = np.diff(self.batch.seq_starts)
        num_sampled = np.bincount(self.sampling, minlength=len(num_rows))
        num_drawn = np.bincount(self.sampling[self.token_ids >= 0], minlength=len(num_rows))
        return (num_rows - num_sampled + num_drawn).astype(np.int32)


class Proposer(Protocol):
    """Guesses what comes next in requests. A guess costs or saves time and never changes a token: the sampler draws as
    if alone and keeps what was guessed right.

    The runner tells it of every request that it samples for; all calls come from the thread of the steps. In a step it
    is asked once, before the model runs, and hears what has come of it, before the next one is asked for.

    A model that guesses has layers of its own in the KV memory, behind the same block tables. Whoever goes on from a
    block, at once or after a restart, takes it that all its layers hold the state of its tokens: after `ran` they do.
    """

    def add(self, slot: int, request: NewRequestData) -> None:
        """A request is new in a slot, or has come back after preemption: its known tokens, prompt first."""
        ...

    def remove(self, slot: int) -> None:
        """Forgets the request in a slot; it ended, or was preempted."""
        ...

    def propose(
        self, slots: Sequence[int], most: Sequence[int], least_chance: float, held: SlotArrays
    ) -> Sequence[Sequence[int]]:
        """Guesses for some slots, each of them in this step with its last known token, whose KV is not there yet. Block
        tables reach as far as guesses do:

            | known ................. | last known | guess | guess | guess |
            |<--- KV is there --->    p              most of them

        Changes nothing that a later answer depends on, but for KV at positions p and behind it: what it raises costs a
        slot its guesses, and where several are asked about, it is asked again about fewer.

        Args:
            slots: distinct, added before.
            most: >= 1 each: guesses that can be run at most.
            least_chance: 0 to 1. A guess that is less likely to be right, with all before it, costs more than it brings
                and should be left out.

        Returns:
            [slots] tokens that may come next, in order; none where it has no guess.
        """
        ...

    def ran(self, step: RanStep) -> Collection[int]:
        """A step has run, or a part of one, with guesses or without; it may hold slots that were never added.

        Returns:
            Slots about which it does not know enough any more; it hears `remove` of each, and nothing else until it is
            added again. If it raises, that is every slot of the step.
        """
        ...

    def close(self) -> None:
        """Releases memory and threads; idempotent."""
        ...


class OpTimer(Protocol):
    """Keeps when the ops of programs ran. One caller at a time, that of the programs."""

    @property
    def programs(self) -> Mapping[str, Sequence[OpInfo]]:
        """Program -> its ops."""
        ...

    def start(self) -> None:
        """Keeps times from now on."""
        ...

    def stop(self) -> dict[str, bytes]:
        """Keeps none from now on; returns those since `start`, as in `StepProfile.ops`."""
        ...


class StepExecutor(Protocol):
    """Runs step plans: the runner in this process, a worker group, or the scripted stand-in."""

    layout: KVLayout

    def execute(self, plan: StepPlan) -> StepResult:
        """Runs one plan. A fault of one request is reported in `StepResult.errors`; an exception means that the
        executor is lost."""
        ...

    def close(self) -> None:
        """Releases everything; idempotent."""
        ...


class GrammarCompiler(Protocol):
    """Compiles the grammars of requests on the executing side, and keeps them for the sampler there: a spec crosses, a
    compiled grammar never does.

    All methods are called by the thread of the engine core and return at once. At construction a compiler is given a
    callable that it calls, from a thread of its own, whenever `poll` has something.
    """

    def prepare(self) -> None:
        """Does, beside the caller, what would hold up the first compilation; idempotent."""
        ...

    def request(self, ticket: int, spec: StructuredSpec, now_s: float) -> None:
        """Asks for a grammar; `poll` will say what has become of it. It is kept until `release`."""
        ...

    def release(self, ticket: int) -> None:
        """A request needs its grammar no more, or does not wait for it any more; no-op for any other."""
        ...

    def poll(self, now_s: float) -> list[ReadyEvent]:
        """What has come of requests since the last call, or will not come in time."""
        ...

    def deadline_s(self) -> float | None:
        """When `poll` will end a wait, if nothing happens before; None: nobody waits."""
        ...

    def close(self) -> None:
        """Ends the threads, as soon as they can; nobody is told anything any more. Idempotent."""
        ...


class KVStore(Protocol):
    """The bytes of one tier: obeys plans, reports events, decides nothing. What lies here, and what goes when there is
    no more room, `kv` decides and says (`start`, `remove`).

    All methods are called by the thread of the engine core and return at once, but for `inventory` and `close`. Work
    is done in the order in which it was asked for, so that a `remove` before a `start` has made its room by then; but
    loads, for which somebody waits, go before stores that have not begun. At construction a store is given a callable
    that it calls, from a thread of its own, whenever `poll` has something.
    """

    tier: Tier
    capacity_bytes: int
    """Most bytes of blocks that may lie here at one time, as `num_bytes` counts them. Blocks in a STORE under way
    count."""

    def num_bytes(self, record: BlockRecord) -> int:
        """Bytes that a block takes here, header included."""
        ...

    def inventory(self) -> list[BlockRecord]:
        """What lies here at start, least recently used first; asked once, before anything else. Damaged and foreign
        blocks are left out, and so is whatever goes beyond the capacity."""
        ...

    def start(self, plan: TransferPlan) -> None:
        """Begins a transfer. The fence of the plan has been passed: its device blocks may be touched from now on. A
        block that lies here already is stored by leaving it as it is."""
        ...

    def cancel(self, transfer_id: int) -> None:
        """Ends a transfer early. After the return no device block of it is touched, as these may now be used for other
        tokens; FAILED follows (with `num_moved` blocks of a store that are whole), unless DONE is among the events
        not polled yet or still comes from copies. No-op for one that has ended."""
        ...

    def remove(self, names: Sequence[BlockName]) -> None:
        """Forgets blocks; those that do not lie here are skipped. No transfer under way names one, unless it has been
        cancelled."""
        ...

    def poll(self) -> list[TransferEvent]:
        """Events since the last call, oldest first."""
        ...

    def close(self) -> None:
        """Ends all transfers and releases everything, within a second; a block half stored is as good as not stored.
        Idempotent."""
        ...
