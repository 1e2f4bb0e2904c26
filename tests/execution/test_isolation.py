"""What raises in a step ends the requests that cause it; the others get what they would have had."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidRequestError, WorkerLostError
from octavo.execution.isolation import isolate
from octavo.execution.nan import rows_with_nan
from octavo.execution.protocols import Float32, Int32, SampledRows, StepBatch, TokenMasks
from octavo.execution.runner import MAX_LOST_PROBES, Runner
from octavo.request.outputs import LogprobRow
from octavo.request.params import SamplingParams
from octavo.scheduling.plan import BlockCopy, StepPlan, StepResult
from tests.execution.test_runner import NAN_TOKEN, ArgmaxSampler, RecordingExecutor, new

BAD = 9
"""A token that the executor below cannot take."""


@given(st.sets(st.integers(0, 40)), st.integers(1, 40))
def test_whoever_is_not_bad_is_done_once_and_in_order(bad: set[int], count: int) -> None:
    done: list[int] = []
    given_up: list[int] = []
    attempts = 0

    def attempt(places: Sequence[int]) -> None:
        nonlocal attempts
        attempts += 1
        if not bad.isdisjoint(places):
            raise ValueError("bad")
        done.extend(places)

    isolate(range(count), attempt, lambda place, _: given_up.append(place))
    assert done == [place for place in range(count) if place not in bad]
    assert given_up == [place for place in range(count) if place in bad]
    assert attempts <= 1 + 2 * len(given_up) * math.ceil(math.log2(count))


@pytest.mark.parametrize("error", [WorkerLostError("gone"), KeyboardInterrupt()])
def test_what_is_nobodys_fault_goes_through(error: BaseException) -> None:
    def attempt(places: Sequence[int]) -> None:
        raise error

    with pytest.raises(type(error)):
        isolate(range(4), attempt, lambda place, _: pytest.fail(f"{place} is blamed"))


def test_rows_with_nan_are_found_and_infinities_are_numbers() -> None:
    values = np.zeros((6, 12), np.float32)[:, :8]
    values[1, 7], values[4, 0] = np.nan, np.nan
    values[2, 3], values[2, 4], values[3] = np.inf, -np.inf, -np.inf
    assert rows_with_nan(values).tolist() == [1, 4]
    assert rows_with_nan(values[:0]).tolist() == []


class TouchyExecutor(RecordingExecutor):
    """Raises at a step with the bad token in it, after it has written."""

    def run(self, batch: StepBatch) -> Float32:
        logits = super().run(batch)
        if BAD in batch.token_ids:
            raise ValueError("no such token")
        return logits


class TouchySampler(ArgmaxSampler):
    """Counts tokens, and raises at some slots: when it takes them in, or after it has counted those before."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[int] = set()
        """First tokens of prompts."""
        self.raising: set[int] = set()
        self.unscorable: set[int] = set()

    def add(
        self,
        slot: int,
        params: SamplingParams,
        eos_token_ids: Sequence[int],
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
    ) -> None:
        if prompt_token_ids[0] in self.refused:
            raise InvalidRequestError("logit_bias", {77: 1}, "no such token")
        super().add(slot, params, eos_token_ids, prompt_token_ids, output_token_ids)

    def sample(self, logits: Float32, slots: Int32, masks: TokenMasks | None = None) -> SampledRows:
        rows = super().sample(logits, slots, masks)
        for slot, token in zip(slots.tolist(), rows.token_ids.tolist(), strict=True):
            if slot in self.raising:
                raise MemoryError
            self.added[slot][1].append(token)
        return rows

    def score(self, logits: Float32, targets: Int32, num_logprobs: int) -> list[LogprobRow]:
        if not self.unscorable.isdisjoint(targets.tolist()):
            raise ValueError("not to be scored")
        return super().score(logits, targets, num_logprobs)


def make_runner() -> tuple[Runner, TouchyExecutor, TouchySampler]:
    executor, sampler = TouchyExecutor(), TouchySampler()
    return Runner(executor, sampler, max_num_seqs=4, max_model_len=32, clock=lambda: 0.0), executor, sampler


def first_plan(*prompts: list[int], counts: Sequence[int] = (), **params: int) -> StepPlan:
    """Requests a, b, c, ... with these prompts; all of them, or so many tokens, run."""
    names = "abcd"[: len(prompts)]
    blocks = [((1 + 2 * i,), (2 + 2 * i,)) for i in range(len(prompts))]
    return StepPlan(
        step=0,
        request_ids=tuple(names),
        num_scheduled_tokens=tuple(counts or map(len, prompts)),
        num_computed_tokens=(0,) * len(prompts),
        new_block_ids=((),) * len(prompts),
        new_requests=tuple(new(*each, **params) for each in zip(names, prompts, blocks, strict=True)),
    )


def next_plan(step: int, computed: dict[str, int], **more: object) -> StepPlan:
    """One token more for each."""
    return StepPlan(
        step=step,
        request_ids=tuple(computed),
        num_scheduled_tokens=(1,) * len(computed),
        num_computed_tokens=tuple(computed.values()),
        new_block_ids=(((), ()),) * len(computed),
        **more,  # type: ignore[arg-type]
    )


def tokens_of(result: StepResult) -> list[int | None]:
    return [ids[0] if ids else None for ids in result.token_ids]


def test_a_step_that_raises_ends_the_request_that_causes_it(caplog: pytest.LogCaptureFixture) -> None:
    runner, executor, sampler = make_runner()
    result = runner.execute(first_plan([1, 2], [3, BAD], [5], [6, 7]))
    assert tokens_of(result) == [3, None, 6, 8]
    assert result.errors == {"b": "the engine failed at this request (ValueError); its log says more"}
    assert "request b ends" in caplog.text and "no such token" in caplog.text
    assert [batch.token_ids.tolist() for batch in executor.batches[1:]] == [[1, 2, 3, BAD], [1, 2], [3, BAD], [5, 6, 7]]
    assert [sampler.added[slot][1] for slot in (0, 2, 3)] == [[3], [6], [8]]
    result = runner.execute(next_plan(1, {"a": 2, "c": 1, "d": 2}, finished_request_ids=("b",)))
    assert tokens_of(result) == [4, 7, 9] and not result.errors


def test_blocks_are_copied_until_a_part_has_run_and_not_again() -> None:
    """A block that was copied to has been written to since."""
    runner, executor, _ = make_runner()
    plan = first_plan([BAD], [2], [3], [4])
    copies = (BlockCopy(0, 12, 3, 2),)
    runner.execute(
        StepPlan(**{name: getattr(plan, name) for name in plan.__struct_fields__} | {"block_copies": copies})
    )
    assert [(batch.token_ids.tolist(), batch.block_copies) for batch in executor.batches] == [
        ([BAD, 2, 3, 4], copies),
        ([BAD, 2], copies),
        ([BAD], copies),
        ([2], copies),
        ([3, 4], ()),
    ]


def test_a_request_that_cannot_be_taken_in_ends_and_the_others_run() -> None:
    runner, executor, sampler = make_runner()
    sampler.refused = {2}
    result = runner.execute(first_plan([1], [2], [3]))
    assert tokens_of(result) == [2, None, 4]
    assert result.errors == {"b": "logit_bias={77: 1}: no such token"}
    assert executor.batches[0].token_ids.tolist() == [1, 3]
    sampler.refused = set()
    ahead = runner.execute(next_plan(1, {"a": 1, "b": 1, "c": 1}))  # planned before it was known
    assert tokens_of(ahead) == [3, None, 5] and ahead.errors == {"b": "it failed in the step before"}
    again = new("b", [6], ((9,), (10,)))
    result = runner.execute(
        StepPlan(
            step=2,
            request_ids=("b",),
            num_scheduled_tokens=(1,),
            num_computed_tokens=(0,),
            new_block_ids=((),),
            new_requests=(again,),
            finished_request_ids=("b",),
        )
    )
    assert tokens_of(result) == [7] and not result.errors


def test_a_sampler_that_raises_at_one_row_draws_the_others_from_where_they_were() -> None:
    runner, _, sampler = make_runner()
    runner.execute(first_plan([1], [2], [3], [4]))
    sampler.raising = {2}
    result = runner.execute(next_plan(1, dict.fromkeys("abcd", 1)))
    assert tokens_of(result) == [3, 4, None, 6] and set(result.errors) == {"c"}
    sampler.raising = set()
    assert tokens_of(runner.execute(next_plan(2, dict.fromkeys("abd", 2), finished_request_ids=("c",)))) == [4, 5, 7]
    assert {slot: outputs for slot, (_, outputs) in sampler.added.items()} == {
        0: [2, 3, 4],
        1: [3, 4, 5],
        3: [5, 6, 7],
    }


def test_prompt_logprobs_that_raise_end_their_request_and_no_token_counts_twice() -> None:
    runner, _, sampler = make_runner()
    sampler.unscorable = {8}
    result = runner.execute(first_plan([1, 2], [3, 8], [5, 6], prompt_logprobs=0))
    assert tokens_of(result) == [3, None, 7] and set(result.errors) == {"b"}
    assert {name: [row.token_ids for row in rows] for name, rows in result.prompt_logprobs.items()} == {
        "a": [[2]],
        "c": [[6]],
    }
    assert [sampler.added[slot][1] for slot in (0, 2)] == [[3], [7]]
    assert tokens_of(runner.execute(next_plan(1, {"a": 2, "c": 2}, finished_request_ids=("b",)))) == [4, 8]


def test_a_slot_whose_sampling_cannot_be_restored_harms_nobody_else() -> None:
    runner, _, sampler = make_runner()
    runner.execute(first_plan([1], [2], [3]))
    sampler.raising, sampler.refused = {1}, {2}
    result = runner.execute(next_plan(1, dict.fromkeys("abc", 1)))
    assert tokens_of(result) == [3, None, 5]
    sampler.raising, sampler.refused = set(), set()
    assert tokens_of(runner.execute(next_plan(2, {"a": 2, "c": 2}, finished_request_ids=("b",)))) == [4, 6]


def test_a_prompt_row_without_a_number_ends_its_request_in_that_step() -> None:
    """However the prompt is cut: with the last token, or long before it."""
    runner, _, _ = make_runner()
    result = runner.execute(first_plan([1, NAN_TOKEN, NAN_TOKEN, 4], [1, NAN_TOKEN, 3], [1, 2, 3], counts=(3, 3, 2)))
    problem = "the model gives no number (NaN) for the token at position 1"
    assert result.errors == {"a": problem, "b": problem}
    assert tokens_of(result) == [None, None, None]
    assert tokens_of(runner.execute(next_plan(1, {"c": 2}, finished_request_ids=("a", "b")))) == [4]


def test_of_a_row_with_logits_the_sampler_says_what_is_wrong() -> None:
    """The same as when that token runs alone, as it does in an answer."""
    runner, _, _ = make_runner()
    result = runner.execute(first_plan([1, 2, NAN_TOKEN], [3, 4]))
    assert not result.errors  # this one says nothing
    assert tokens_of(runner.execute(next_plan(1, {"a": 3, "b": 2}))) == [2, 6]


class BrokenExecutor(RecordingExecutor):
    is_broken = True

    def run(self, batch: StepBatch) -> Float32:
        if self.is_broken:
            raise MemoryError
        return super().run(batch)


def test_an_executor_that_runs_nothing_any_more_is_lost_after_some_steps() -> None:
    executor = BrokenExecutor()
    runner = Runner(executor, TouchySampler(), max_num_seqs=4, max_model_len=32, clock=lambda: 0.0)
    result = runner.execute(first_plan([1, 2], [3]))
    assert set(result.errors) == {"a", "b"} and result.token_ids == ((), ())
    for step in range(1, MAX_LOST_PROBES - 1):
        assert set(runner.execute(next_plan(step, {"a": 1})).errors) == {"a"}
    with pytest.raises(WorkerLostError, match="nothing could be run"):
        runner.execute(next_plan(MAX_LOST_PROBES - 1, {"a": 1}))


def test_a_shortage_that_passes_is_forgotten() -> None:
    executor = BrokenExecutor()
    runner = Runner(executor, TouchySampler(), max_num_seqs=4, max_model_len=32, clock=lambda: 0.0)
    runner.execute(first_plan([1, 2], [3]))
    for step in range(1, 4 * MAX_LOST_PROBES):
        executor.is_broken = step % (MAX_LOST_PROBES - 1) != 0
        assert ("a" in runner.execute(next_plan(step, {"a": 1})).errors) is executor.is_broken


def test_any_number_of_bad_requests_alone_is_no_loss() -> None:
    runner, executor, _ = make_runner()
    runner.execute(first_plan([1, BAD]))
    for step in range(1, 4 * MAX_LOST_PROBES):
        assert set(runner.execute(next_plan(step, {"a": 1})).errors) == {"a"}
    probe = executor.batches[-1]
    assert probe.slot_mapping.tolist() == [[0], [0]] and probe.block_tables.tolist() == [[[0]], [[0]]]
