"""Pooling: which positions count, cutting and scaling, sums over chunks, and what goes wrong alone."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.execution.pooling import Pooler, finished
from octavo.execution.protocols import Float32, Int32, StepBatch
from octavo.execution.runner import Runner
from octavo.request.pooling import NOTHING_SAMPLED, PoolingParams
from octavo.scheduling.plan import NewRequestData, StepPlan
from tests.execution.test_runner import ArgmaxSampler, RecordingExecutor

WIDTH = 6


class States:
    """The part of an executor that pooling asks: the hidden state of a token is a row of a table."""

    max_rows = 3

    def __init__(self, table: Float32) -> None:
        self.table = table
        self.batch: StepBatch | None = None
        self.pieces: list[int] = []

    def hidden(self, rows: Int32) -> Float32:
        assert self.batch is not None
        assert 0 < len(rows) <= self.max_rows
        self.pieces.append(len(rows))
        return self.table[self.batch.token_ids[rows]]


def batch_of(*sequences: tuple[int, list[int]]) -> StepBatch:
    """Of sequences given as (tokens computed before, token ids)."""
    ids = [token for _, tokens in sequences for token in tokens]
    positions = [start + i for start, tokens in sequences for i in range(len(tokens))]
    empty = np.zeros((1, 1, 1), np.int32)
    return StepBatch(
        token_ids=np.array(ids, np.int32),
        positions=np.array(positions, np.int32),
        seq_starts=np.cumsum([0, *[len(tokens) for _, tokens in sequences]]).astype(np.int32),
        context_lens=np.array([start + len(tokens) for start, tokens in sequences], np.int32),
        block_tables=empty,
        slot_mapping=empty[0],
        logit_rows=np.zeros(0, np.int32),
    )


def table(rows: int = 50) -> Float32:
    return np.random.default_rng(3).normal(size=(rows, WIDTH)).astype(np.float32)


def read(vector: bytes) -> Float32:
    return np.frombuffer(vector, "<f4")


def pool_in_chunks(params: PoolingParams, prompt: list[int], cuts: list[int]) -> bytes:
    executor = States(table())
    pooler = Pooler(executor)  # type: ignore[arg-type]
    pooler.add(4, params, len(prompt))
    edges = [0, *cuts, len(prompt)]
    for start, stop in pairwise(edges):
        executor.batch = batch_of((7, [1, 2]), (start, prompt[start:stop]))
        pooled = pooler.pool(executor.batch, [0, 4])
        assert not pooled.problems
        assert (1 in pooled.vectors) == (stop == len(prompt))
    return pooled.vectors[1]


def test_last_is_the_state_of_the_last_position() -> None:
    vector = read(pool_in_chunks(PoolingParams(normalize=False), [5, 6, 7, 8], [2]))
    np.testing.assert_array_equal(vector, table()[8])


def test_mean_is_over_all_positions() -> None:
    vector = read(pool_in_chunks(PoolingParams(pooling="mean", normalize=False), [5, 6, 7, 8], [1, 3]))
    np.testing.assert_array_equal(vector, table()[[5, 6, 7, 8]].astype(np.float64).mean(axis=0).astype(np.float32))


@settings(max_examples=60)
@given(st.data())
def test_chunks_change_no_bit(data: st.DataObject) -> None:
    prompt = data.draw(st.lists(st.integers(0, 49), min_size=1, max_size=20))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(prompt) - 1)), max_size=5)) - {len(prompt)})
    params = PoolingParams(
        pooling=data.draw(st.sampled_from(["last", "mean"])),
        normalize=data.draw(st.booleans()),
        dimensions=data.draw(st.sampled_from([None, 1, WIDTH])),
    )
    assert pool_in_chunks(params, prompt, cuts) == pool_in_chunks(params, prompt, [])


@settings(max_examples=60)
@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=9).filter(any), st.integers(1, 9))
def test_the_cut_comes_before_the_scale(values: list[float], dimensions: int) -> None:
    vector = finished(np.array(values), PoolingParams(dimensions=dimensions))
    assert len(vector) == min(dimensions, len(values))
    length = math.sqrt(math.fsum(float(x) ** 2 for x in vector))
    assert length == pytest.approx(1, abs=1e-6) or not any(values[:dimensions]) or length < 1e-6


def test_zeros_stay_zeros() -> None:
    assert finished(np.zeros(3), PoolingParams()).tolist() == [0, 0, 0]


def test_rows_are_fetched_in_pieces_and_only_those_that_count() -> None:
    executor = States(table())
    pooler = Pooler(executor)  # type: ignore[arg-type]
    pooler.add(0, PoolingParams(pooling="mean"), 7)
    pooler.add(1, PoolingParams(), 5)
    pooler.add(2, PoolingParams(), 9)
    executor.batch = batch_of((0, [1, 2, 3, 4, 5, 6, 7]), (0, [1, 2, 3, 4, 5]), (0, [1, 2, 3]), (0, [1, 2]))
    pooled = pooler.pool(executor.batch, [0, 1, 2, 3])
    assert set(pooled.vectors) == {0, 1}
    assert executor.pieces == [3, 3, 2]


def test_nothing_is_fetched_for_nobody() -> None:
    executor = States(table())
    pooler = Pooler(executor)  # type: ignore[arg-type]
    pooler.add(0, PoolingParams(), 2)
    pooler.remove(0)
    pooler.remove(0)
    assert not pooler.pool(batch_of((0, [1, 2])), [0]).vectors
    assert not executor.pieces


def test_a_step_that_raises_is_not_taken_in() -> None:
    """The runner then runs it again in parts."""
    executor = States(table())
    pooler = Pooler(executor)  # type: ignore[arg-type]
    for slot in (0, 1):
        pooler.add(slot, PoolingParams(pooling="mean"), 4)
    executor.batch = batch_of((0, [1, 2, 3, 4]), (0, [5, 6, 7, 99]))
    with pytest.raises(IndexError):
        pooler.pool(executor.batch, [0, 1])
    executor.batch = batch_of((0, [1, 2, 3, 4]))
    vector = read(pooler.pool(executor.batch, [0]).vectors[0])
    np.testing.assert_allclose(vector, finished(table()[1:5].mean(axis=0), PoolingParams()), atol=1e-6)


def test_a_part_that_is_missing_is_a_problem_of_that_request() -> None:
    executor = States(table())
    pooler = Pooler(executor)  # type: ignore[arg-type]
    pooler.add(0, PoolingParams(pooling="mean"), 4)
    pooler.add(1, PoolingParams(), 2)
    executor.batch = batch_of((2, [3, 4]), (0, [1, 2]))
    pooled = pooler.pool(executor.batch, [0, 1])
    assert set(pooled.vectors) == {1}
    assert "part of its prompt failed" in pooled.problems[0]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_a_problem_of_that_request(value: float) -> None:
    states = table()
    states[9] = value
    executor = States(states)
    pooler = Pooler(executor)  # type: ignore[arg-type]
    pooler.add(0, PoolingParams(pooling="mean"), 3)
    pooler.add(1, PoolingParams(), 2)
    executor.batch = batch_of((0, [1, 9, 2]), (0, [1, 2]))
    with np.errstate(invalid="ignore"):
        pooled = pooler.pool(executor.batch, [0, 1])
    assert set(pooled.vectors) == {1}
    assert "NaN or an infinity" in pooled.problems[0]


class StatefulExecutor(RecordingExecutor):
    """Hidden states are rows of a table by token id; a step with the bad token raises after it has run."""

    bad_token = 9

    def run(self, batch: StepBatch) -> Float32:
        logits = super().run(batch)
        if self.bad_token in batch.token_ids:
            raise MemoryError("no scratch")
        return logits

    def hidden(self, rows: Int32) -> Float32:
        return table()[self.batches[-1].token_ids[rows]]


def pooled_request(request_id: str, tokens: list[int], first_block: int) -> NewRequestData:
    blocks = tuple(range(first_block, first_block + 2))
    return NewRequestData(
        request_id=request_id,
        token_ids=tokens,
        num_prompt_tokens=len(tokens),
        params=NOTHING_SAMPLED,
        eos_token_ids=(),
        block_ids=(blocks, tuple(block + 2 for block in blocks)),
        pooling=PoolingParams(pooling="mean"),
    )


def test_the_runner_counts_a_step_once_although_it_runs_it_again_in_parts() -> None:
    executor = StatefulExecutor()
    runner = Runner(executor, ArgmaxSampler(), max_num_seqs=4, max_model_len=32, clock=lambda: 0.0)
    prompts = {"good": [1, 2, 3, 4, 5, 6], "bad": [1, 2, 9, 4]}
    first = StepPlan(
        step=0,
        request_ids=("good", "bad"),
        num_scheduled_tokens=(4, 4),
        num_computed_tokens=(0, 0),
        new_block_ids=((), ()),
        new_requests=(pooled_request("good", prompts["good"], 1), pooled_request("bad", prompts["bad"], 5)),
    )
    second = StepPlan(
        step=1,
        request_ids=("good",),
        num_scheduled_tokens=(2,),
        num_computed_tokens=(4,),
        new_block_ids=(((), ()),),
        finished_request_ids=("bad",),
    )
    result = runner.execute(first)
    assert set(result.errors) == {"bad"}
    assert not result.vectors
    result = runner.execute(second)
    assert not result.errors
    assert result.token_ids == ((),)
    expected = finished(table()[prompts["good"]].astype(np.float64).mean(axis=0), PoolingParams())
    np.testing.assert_array_equal(read(result.vectors["good"]), expected)
    assert all(batch.logit_rows.size == 0 for batch in executor.batches), "nobody samples"
