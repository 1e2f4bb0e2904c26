"""Whoever guesses is asked once for a step and hears what came of it; what it raises costs drafts and nothing else."""

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pytest

from octavo.execution.protocols import Float32, Int32, RanStep, SampledRows, SlotArrays, StepBatch, TokenMasks
from octavo.execution.runner import Runner
from octavo.scheduling.plan import NewRequestData, StepPlan
from tests.execution.test_runner import ArgmaxSampler, RecordingExecutor, new

Guess = Callable[[int, int], Sequence[int]]


class VerifyingSampler(ArgmaxSampler):
    """Every draft can be drawn; the token behind a token is the next number."""

    def prepare(self, slots: Int32, drafts: Int32 | None = None) -> None:
        self.prepared.append(slots.tolist())

    def num_worth_running(self, slot: int, drafts: Sequence[int]) -> int:
        return len(drafts)

    def verify(self, logits: Float32, slots: Int32, drafts: Int32, masks: TokenMasks | None = None) -> SampledRows:
        ids = logits.argmax(axis=1).astype(np.int32)
        counts, slot = True, -1
        for row in range(len(ids)):
            counts = counts if slots[row] == slot else True
            slot = slots[row]
            if not counts:
                ids[row] = -1
            counts = counts and drafts[row] == ids[row]
        return SampledRows(ids, [])


class Guesser:
    """Guesses by slot and last known token; keeps what it is told."""

    def __init__(self, guess: Guess) -> None:
        self.guess = guess
        self.told: list[tuple[object, ...]] = []
        self.steps: list[RanStep] = []
        self.lost: list[int] = []
        self.least_chances: list[float] = []

    def add(self, slot: int, request: NewRequestData) -> None:
        if request.request_id.startswith("unknown"):
            raise MemoryError(request.request_id)
        self.told.append(("add", slot))

    def remove(self, slot: int) -> None:
        self.told.append(("remove", slot))

    def propose(
        self, slots: Sequence[int], most: Sequence[int], least_chance: float, held: SlotArrays
    ) -> list[Sequence[int]]:
        self.told.append(("propose", *slots))
        self.least_chances.append(least_chance)
        last = [int(held.tokens[slot, held.num_tokens[slot] - 1]) for slot in slots]
        return [self.guess(slot, token) for slot, token in zip(slots, last, strict=True)]

    def ran(self, step: RanStep) -> Collection[int]:
        self.steps.append(step)
        self.told.append(("ran", *step.slots))
        return self.lost

    def close(self) -> None:
        self.told.append(("close",))


def runner_with(guess: Guess) -> tuple[Runner, RecordingExecutor, Guesser]:
    executor, guesser = RecordingExecutor(), Guesser(guess)
    runner = Runner(executor, VerifyingSampler(), max_num_seqs=4, max_model_len=32, clock=lambda: 0.0, proposer=guesser)
    return runner, executor, guesser


def prompts(*request_ids: str) -> StepPlan:
    """Two tokens, 1 and 2, of each; all have a token behind them."""
    return StepPlan(
        step=0,
        request_ids=request_ids,
        num_scheduled_tokens=(2,) * len(request_ids),
        num_computed_tokens=(0,) * len(request_ids),
        new_block_ids=((),) * len(request_ids),
        new_requests=tuple(
            new(request_id, [1, 2], ((3 * i + 1, 3 * i + 2), (3 * i + 1, 3 * i + 2)))
            for i, request_id in enumerate(request_ids)
        ),
    )


def drafted(step: int, num_computed: int, *request_ids: str, most: int = 3) -> StepPlan:
    return StepPlan(
        step=step,
        request_ids=request_ids,
        num_scheduled_tokens=(1 + most,) * len(request_ids),
        num_computed_tokens=(num_computed,) * len(request_ids),
        new_block_ids=(((), ()),) * len(request_ids),
        num_draft_tokens=(most,) * len(request_ids),
        least_draft_chance=0.25,
    )


def test_it_is_asked_once_and_hears_of_every_row() -> None:
    runner, executor, guesser = runner_with(lambda slot, token: (token + 1, token + 2, 0) if slot == 0 else ())
    runner.execute(prompts("a", "b"))
    assert guesser.steps[0].drawn == {0: [3], 1: [3]}
    assert guesser.steps[0].num_kept.tolist() == [2, 2]
    guesser.told.clear()
    result = runner.execute(drafted(1, 2, "a", "b"))
    assert guesser.told == [("propose", 0, 1), ("ran", 0, 1)]
    assert guesser.least_chances == [0.25]
    assert executor.batches[-1].token_ids.tolist() == [3, 4, 5, 0, 3]
    assert result.token_ids == ((4, 5, 6), (4,))
    assert result.num_draft_tokens == (3, 0)
    step = guesser.steps[-1]
    assert step.batch is executor.batches[-1]
    assert step.drawn == {0: [4, 5, 6], 1: [4]}
    assert step.num_kept.tolist() == [3, 1], "the third draft was wrong"
    assert step.states is executor


def test_rows_of_unfinished_prompts_are_kept() -> None:
    runner, _, guesser = runner_with(lambda slot, token: ())
    plan = StepPlan(
        step=0,
        request_ids=("a",),
        num_scheduled_tokens=(3,),
        num_computed_tokens=(0,),
        new_block_ids=((),),
        new_requests=(new("a", [1, 2, 3, 4, 5], ((1, 2), (3, 4))),),
    )
    runner.execute(plan)
    assert guesser.steps[0].drawn == {}
    assert guesser.steps[0].num_kept.tolist() == [3]


def test_a_guess_that_raises_costs_its_slot_the_drafts_and_no_other() -> None:
    def guess(slot: int, token: int) -> Sequence[int]:
        if slot == 1:
            raise ArithmeticError("no guess")
        return (token + 1,)

    runner, _, guesser = runner_with(guess)
    runner.execute(prompts("a", "b", "c"))
    result = runner.execute(drafted(1, 2, "a", "b", "c", most=1))
    assert result.num_draft_tokens == (1, 0, 1)
    assert result.errors == {}
    assert ("remove", 1) in guesser.told
    guesser.told.clear()
    assert runner.execute(drafted(2, 4, "a", "c", most=1)).num_draft_tokens == (1, 1)
    assert guesser.told[0] == ("propose", 0, 2)
    runner.execute(drafted(3, 3, "b", most=1))
    assert ("propose", 1) not in guesser.told


def test_a_request_that_was_not_taken_in_has_none() -> None:
    runner, _, guesser = runner_with(lambda slot, token: (token + 1,))
    runner.execute(prompts("a", "unknown"))
    assert runner.execute(drafted(1, 2, "a", "unknown", most=1)).num_draft_tokens == (1, 0)
    assert guesser.steps[-1].slots == [0, 1], "its rows have run all the same"


@pytest.mark.parametrize("lost", [[0], [0, 1]])
def test_slots_that_it_lost_have_no_drafts(lost: list[int]) -> None:
    runner, _, guesser = runner_with(lambda slot, token: (token + 1,))
    guesser.lost = lost
    runner.execute(prompts("a", "b"))
    assert runner.execute(drafted(1, 2, "a", "b", most=1)).num_draft_tokens == ((0, 1) if lost == [0] else ())
    assert [told for told in guesser.told if told[0] == "remove"] == [("remove", slot) for slot in lost]


def test_all_slots_of_a_step_are_lost_where_it_raises_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, _, guesser = runner_with(lambda slot, token: (token + 1,))

    def ran(step: RanStep) -> Collection[int]:
        raise MemoryError

    monkeypatch.setattr(guesser, "ran", ran)
    assert runner.execute(prompts("a", "b")).token_ids == ((3,), (3,))
    assert runner.execute(drafted(1, 2, "a", "b", most=1)).token_ids == ((4,), (4,))
    assert [told for told in guesser.told if told[0] == "propose"] == []


def test_a_step_in_parts_is_told_in_parts() -> None:
    runner, executor, guesser = runner_with(lambda slot, token: ())
    whole = executor.run

    def run(batch: StepBatch) -> Float32:
        if len(batch.context_lens) > 1:
            raise MemoryError
        return whole(batch)

    executor.run = run  # type: ignore[method-assign]
    runner.execute(prompts("a", "b"))
    assert [list(step.slots) for step in guesser.steps] == [[0], [1]]
    assert [step.drawn for step in guesser.steps] == [{0: [3]}, {1: [3]}]


def test_what_the_runner_holds_cannot_be_written() -> None:
    runner, _, guesser = runner_with(lambda slot, token: ())
    runner.execute(prompts("a"))

    def propose(
        slots: Sequence[int], most: Sequence[int], least_chance: float, held: SlotArrays
    ) -> list[Sequence[int]]:
        with pytest.raises(ValueError, match="read-only"):
            held.tokens[0, 0] = 1
        return [()]

    guesser.propose = propose  # type: ignore[method-assign]
    assert runner.execute(drafted(1, 2, "a", most=1)).token_ids == ((4,),)


def test_it_is_closed_with_the_runner_which_its_failure_does_not_hold_up(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, executor, guesser = runner_with(lambda slot, token: ())
    closed = []
    monkeypatch.setattr(executor, "close", lambda: closed.append(list(guesser.told)))
    runner.close()
    assert closed == [[("close",)]], "before the executor whose memory it may use"

    def close() -> None:
        raise OSError

    monkeypatch.setattr(guesser, "close", close)
    runner.close()
    assert len(closed) == 2
