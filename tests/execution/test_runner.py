"""The runner: plans become arrays, sampled tokens become known, failed rows touch nobody else."""

from collections.abc import Sequence

import numpy as np
import pytest

from octavo.execution.protocols import Float32, Int32, SampledRows, StepBatch, TokenMasks
from octavo.execution.runner import Runner
from octavo.kv.spec import AttentionSpec, KVDtype, KVLayout, lay_out
from octavo.request.outputs import LogprobRow
from octavo.request.params import SamplingParams
from octavo.scheduling.plan import BlockCopy, BlockSwap, NewRequestData, StepPlan

VOCAB = 10
NAN_TOKEN = 0


def make_layout() -> KVLayout:
    full = AttentionSpec(num_kv_heads=1, head_dim=8)
    windowed = AttentionSpec(num_kv_heads=1, head_dim=8, window=4)
    return lay_out((full, windowed), num_blocks=16, block_size=4, dtype=KVDtype.FP32)


class RecordingExecutor:
    """Keeps what it was asked to run; logits of a row favour (token id + 1) % VOCAB."""

    max_rows = 2

    def __init__(self) -> None:
        self.layout = make_layout()
        self.batches: list[StepBatch] = []
        self.pieces: list[list[int]] = []

    def run(self, batch: StepBatch) -> Float32:
        self.batches.append(batch)
        return self._logits(batch.logit_rows)

    def logits(self, rows: Int32) -> Float32:
        assert len(rows) <= self.max_rows
        self.pieces.append(rows.tolist())
        return self._logits(rows)

    def _logits(self, rows: Int32) -> Float32:
        logits = np.zeros((len(rows), VOCAB), np.float32)
        logits[np.arange(len(rows)), (self.batches[-1].token_ids[rows] + 1) % VOCAB] = 1
        return logits

    def broken_rows(self) -> Int32:
        return np.flatnonzero(self.batches[-1].token_ids == NAN_TOKEN).astype(np.int32)

    def close(self) -> None:
        pass


class ArgmaxSampler:
    def __init__(self, failing_slots: Sequence[int] = ()) -> None:
        self.failing_slots = set(failing_slots)
        self.added: dict[int, tuple[list[int], list[int]]] = {}
        self.prepared: list[list[int]] = []
        """Slots that were announced."""

    def add(
        self,
        slot: int,
        params: SamplingParams,
        eos_token_ids: Sequence[int],
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
    ) -> None:
        self.added[slot] = (list(prompt_token_ids), list(output_token_ids))

    def remove(self, slot: int) -> None:
        del self.added[slot]

    def prepare(self, slots: Int32) -> None:
        self.prepared.append(slots.tolist())

    def sample(self, logits: Float32, slots: Int32, masks: TokenMasks | None = None) -> SampledRows:
        ids = logits.argmax(axis=1).astype(np.int32)
        errors = {row: "bad row" for row, slot in enumerate(slots.tolist()) if slot in self.failing_slots}
        ids[list(errors)] = -1
        return SampledRows(token_ids=ids, logprobs=[], errors=errors)

    def score(self, logits: Float32, targets: Int32, num_logprobs: int) -> list[LogprobRow]:
        return [LogprobRow([int(target)], [float(row[target])], 1) for row, target in zip(logits, targets, strict=True)]


def new(request_id: str, tokens: list[int], blocks: tuple[tuple[int, ...], ...], **params: int) -> NewRequestData:
    return NewRequestData(
        request_id=request_id,
        token_ids=tokens,
        num_prompt_tokens=len(tokens),
        params=SamplingParams(**params),
        eos_token_ids=(),
        block_ids=blocks,
    )


def make_runner(sampler: ArgmaxSampler | None = None) -> tuple[Runner, RecordingExecutor, ArgmaxSampler]:
    executor, sampler = RecordingExecutor(), sampler or ArgmaxSampler()
    runner = Runner(executor, sampler, max_num_seqs=4, max_model_len=32, clock=lambda: 0.0)
    return runner, executor, sampler


def first_plan() -> StepPlan:
    """a: 5 of 5 prompt tokens; b: the first 3 of 6."""
    return StepPlan(
        step=0,
        request_ids=("a", "b"),
        num_scheduled_tokens=(5, 3),
        num_computed_tokens=(0, 0),
        new_block_ids=((), ()),
        new_requests=(
            new("a", [1, 2, 3, 4, 5], ((1, 2), (3, 4))),
            new("b", [7, 8, 9, 1, 2, 3], ((5,), (6,))),
        ),
    )


def test_a_plan_becomes_arrays() -> None:
    runner, executor, _ = make_runner()
    result = runner.execute(first_plan())
    batch = executor.batches[0]
    assert batch.token_ids.tolist() == [1, 2, 3, 4, 5, 7, 8, 9]
    assert batch.positions.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert batch.seq_starts.tolist() == [0, 5, 8]
    assert batch.context_lens.tolist() == [5, 3]
    assert batch.slot_mapping.tolist() == [[4, 5, 6, 7, 8, 20, 21, 22], [12, 13, 14, 15, 16, 24, 25, 26]]
    assert batch.block_tables.tolist() == [[[1, 2], [5, 0]], [[3, 4], [6, 0]]]
    assert batch.logit_rows.tolist() == [4]  # b has prompt left
    assert result.token_ids == ((6,), ())


def test_sampled_tokens_run_next_and_blocks_are_appended() -> None:
    runner, executor, _ = make_runner()
    runner.execute(first_plan())
    plan = StepPlan(
        step=1,
        request_ids=("b", "a"),
        num_scheduled_tokens=(3, 1),
        num_computed_tokens=(3, 5),
        new_block_ids=(((8,), (9,)), ((), ())),
    )
    result = runner.execute(plan)
    batch = executor.batches[1]
    assert batch.token_ids.tolist() == [1, 2, 3, 6]
    assert batch.positions.tolist() == [3, 4, 5, 5]
    assert batch.slot_mapping.tolist() == [[23, 32, 33, 9], [27, 36, 37, 17]]
    assert batch.logit_rows.tolist() == [2, 3]
    assert result.token_ids == ((4,), (7,))


def test_a_preempted_request_comes_back_with_its_outputs() -> None:
    runner, executor, sampler = make_runner()
    runner.execute(first_plan())
    resumed = NewRequestData(
        request_id="a",
        token_ids=[1, 2, 3, 4, 5, 6],
        num_prompt_tokens=5,
        params=SamplingParams(),
        eos_token_ids=(),
        block_ids=((10, 11), (12, 13)),
    )
    runner.execute(
        StepPlan(
            step=1,
            request_ids=("a",),
            num_scheduled_tokens=(6,),
            num_computed_tokens=(0,),
            new_block_ids=((),),
            new_requests=(resumed,),
            preempted_request_ids=("a",),
            finished_request_ids=("b", "never-seen"),
        )
    )
    assert list(sampler.added.values()) == [([1, 2, 3, 4, 5], [6])]
    assert executor.batches[1].slot_mapping[0].tolist() == [40, 41, 42, 43, 44, 45]


def test_a_swapped_block_is_read_from_then_on() -> None:
    runner, executor, _ = make_runner()
    runner.execute(first_plan())
    plan = StepPlan(
        step=1,
        request_ids=("a",),
        num_scheduled_tokens=(1,),
        num_computed_tokens=(5,),
        new_block_ids=((),),
        block_swaps=(BlockSwap("a", 0, 0, 14),),
    )
    runner.execute(plan)
    assert executor.batches[1].block_tables[:, 0].tolist() == [[14, 2], [3, 4]]


def test_entries_out_of_reach_become_the_null_block() -> None:
    """Of a running request by a swap, of one that comes with a prefix hit from the start."""
    runner, executor, _ = make_runner()
    runner.execute(first_plan())
    plan = StepPlan(
        step=1,
        request_ids=("a", "c"),
        num_scheduled_tokens=(1, 1),
        num_computed_tokens=(5, 10),
        new_block_ids=((), ()),
        block_swaps=(BlockSwap("a", 1, 0, 0),),
        new_requests=(new("c", list(range(11)), ((7, 8, 9), (0, 10, 11))),),
        block_copies=(BlockCopy(0, 12, 9, 2), BlockCopy(1, 13, 11, 2)),
    )
    runner.execute(plan)
    batch = executor.batches[1]
    assert batch.block_tables.tolist() == [[[1, 2, 0], [7, 8, 9]], [[0, 4, 0], [0, 10, 11]]]
    assert batch.slot_mapping.tolist() == [[9, 38], [17, 46]]
    assert batch.block_copies == plan.block_copies


def test_a_failed_row_touches_nobody_else() -> None:
    runner, _, _ = make_runner(ArgmaxSampler(failing_slots=[0]))
    plan = StepPlan(
        step=0,
        request_ids=("a", "b"),
        num_scheduled_tokens=(2, 2),
        num_computed_tokens=(0, 0),
        new_block_ids=((), ()),
        new_requests=(new("a", [1, 2], ((1,), (2,))), new("b", [3, 4], ((3,), (4,)))),
    )
    result = runner.execute(plan)
    assert result.token_ids == ((), (5,))
    assert result.errors == {"a": "bad row"}


@pytest.mark.parametrize("chunks", [(6,), (2, 4), (1, 1, 1, 1, 1, 1)])
def test_prompt_logprobs_cover_every_prompt_token_in_bounded_pieces(chunks: tuple[int, ...]) -> None:
    runner, executor, _ = make_runner()
    prompt = [1, 2, 3, 7, 8, 9]
    rows: list[LogprobRow] = []
    computed = 0
    for step, count in enumerate(chunks):
        first = step == 0
        result = runner.execute(
            StepPlan(
                step=step,
                request_ids=("a",),
                num_scheduled_tokens=(count,),
                num_computed_tokens=(computed,),
                new_block_ids=((),),
                new_requests=(new("a", prompt, ((1, 2), (3, 4)), prompt_logprobs=0),) if first else (),
            )
        )
        rows += result.prompt_logprobs["a"]
        computed += count
    assert [row.token_ids[0] for row in rows] == prompt[1:]
    assert [row.logprobs[0] for row in rows] == [1.0, 1.0, 0.0, 1.0, 1.0]
    assert all(len(piece) <= executor.max_rows for piece in executor.pieces)


def test_slots_are_reused_without_end() -> None:
    runner, _, sampler = make_runner()
    for step in range(20):
        runner.execute(
            StepPlan(
                step=step,
                request_ids=(f"r{step}",),
                num_scheduled_tokens=(1,),
                num_computed_tokens=(0,),
                new_block_ids=((),),
                new_requests=(new(f"r{step}", [1], ((1,), (2,))),),
                finished_request_ids=(f"r{step - 1}",) if step else (),
            )
        )
    assert len(sampler.added) == 1
