"""The stand-in is strict: whatever is wrong with a plan, it raises. And its tokens depend on the request alone."""

import msgspec
import pytest

from octavo.execution.scripted import PlanViolationError, ScriptedExecutor
from octavo.request.params import SamplingParams
from octavo.scheduling.plan import BlockCopy, BlockSwap, NewRequestData, StepPlan
from tests.scheduling.harness import FULL, WINDOWED, make_layout

PARAMS = SamplingParams(seed=1)


def new(request_id, tokens, blocks, *, num_prompt=None, params=PARAMS, eos=()):
    return NewRequestData(
        request_id=request_id,
        token_ids=list(tokens),
        num_prompt_tokens=num_prompt or len(tokens),
        params=params,
        eos_token_ids=eos,
        block_ids=tuple(tuple(ids) for ids in blocks),
    )


def plan(step, *shares, new_requests=(), **fields):
    """Shares: (request id, computed, scheduled, new block ids per group)."""
    return StepPlan(
        step=step,
        request_ids=tuple(share[0] for share in shares),
        num_computed_tokens=tuple(share[1] for share in shares),
        num_scheduled_tokens=tuple(share[2] for share in shares),
        new_block_ids=tuple(share[3] if len(share) > 3 else ((),) for share in shares),
        new_requests=tuple(new_requests),
        **fields,
    )


def started(**options):
    """An executor that holds request `a` of 5 tokens in blocks 1 and 2, and is done with step 0."""
    executor = ScriptedExecutor(make_layout(8), vocab_size=1000, **options)
    result = executor.execute(plan(0, ("a", 0, 5), new_requests=[new("a", range(5), [[1, 2]])]))
    assert len(result.token_ids[0]) == 1
    return executor


def refuse(executor, bad_plan, problem):
    with pytest.raises(PlanViolationError, match=problem):
        executor.execute(bad_plan)


def test_a_sound_plan_runs():
    executor = started()
    result = executor.execute(plan(1, ("a", 5, 1)))
    assert result.step == 1 and len(result.token_ids[0]) == 1 and not result.errors


@pytest.mark.parametrize(
    ("bad_plan", "problem"),
    [
        (plan(2, ("a", 5, 1)), "step 2 follows step 0"),
        (plan(1), "the plan is empty"),
        (plan(1, ("a", 5, 1), ("a", 5, 1)), "planned twice"),
        (plan(1, ("a", 5, 0)), "has no token"),
        (plan(1, ("b", 0, 1)), "never introduced"),
        (plan(1, ("a", 4, 1)), "4 computed tokens, not 5"),
        (plan(1, ("a", 5, 2)), "runs to 7 of 6 tokens"),
        (plan(1, ("a", 5, 1, ((3,),))), "3 blocks for 6 tokens, not 2"),
        (plan(1, ("a", 5, 1, ((), ()))), "block ids for 2 groups"),
        (plan(1, ("a", 5, 1), finished_request_ids=("b",)), "is not held"),
        (plan(1, ("a", 5, 1), preempted_request_ids=("b",)), "is not held"),
        (plan(1, ("a", 5, 1), new_requests=[new("b", [1], [[3]])]), "new but not planned"),
        (plan(1, ("a", 5, 1), new_requests=[new("a", [1], [[3]])]), "already held"),
        (plan(1, ("b", 0, 1, ((4,),)), new_requests=[new("b", [1], [[3]])]), "new blocks twice"),
        (plan(1, ("b", 0, 1), new_requests=[new("b", [1], [[3]], num_prompt=2)]), "no such prompt"),
        (plan(1, ("b", 0, 5), new_requests=[new("b", range(5), [[3, 3]])]), "twice in the table"),
        (plan(1, ("b", 0, 1), new_requests=[new("b", [1], [[0]])]), "do not exist"),
        (plan(1, ("b", 0, 1), new_requests=[new("b", [1], [[9]])]), "do not exist"),
        (plan(1, ("a", 5, 1), block_swaps=(BlockSwap("b", 0, 0, 3),)), "not in the plan"),
        (plan(1, ("a", 5, 1), block_swaps=(BlockSwap("a", 0, 0, 3),)), "not its own at positions"),
        (plan(1, ("a", 5, 1), block_copies=(BlockCopy(0, 5, 6, 4),)), "never computed"),
        (plan(1, ("a", 5, 1), block_copies=(BlockCopy(0, 1, 1, 4),)), "is no copy"),
        (plan(1, ("a", 5, 1), block_copies=(BlockCopy(0, 1, 2, 4),)), "not its own at positions"),
        (plan(1, ("a", 5, 1), num_draft_tokens=(1,)), "drafts"),
    ],
)
def test_a_wrong_plan_raises(bad_plan, problem):
    refuse(started(), bad_plan, problem)


def test_columns_of_different_length():
    refuse(started(), msgspec.structs.replace(plan(1, ("a", 5, 1)), num_computed_tokens=()), "differ in length")


def test_more_tokens_than_the_budget():
    executor = ScriptedExecutor(make_layout(8), max_num_batched_tokens=4)
    refuse(executor, plan(0, ("a", 0, 5), new_requests=[new("a", range(5), [[1, 2]])]), "exceed the budget 4")


def test_more_requests_than_slots():
    executor = started(max_num_seqs=1)
    refuse(executor, plan(1, ("b", 0, 1), new_requests=[new("b", [1], [[3]])]), "more than 1 requests are held")


def test_a_claimed_hit_on_what_was_never_computed():
    executor = started()
    refuse(executor, plan(1, ("b", 4, 1), new_requests=[new("b", range(5), [[3, 4]])]), "positions \\[0 1 2 3\\]")


def test_a_claimed_hit_on_another_prompt():
    executor = started()
    refuse(executor, plan(1, ("b", 4, 1), new_requests=[new("b", [0, 1, 2, 9, 4], [[1, 4]])]), "positions \\[3\\]")


def test_equal_tokens_behind_another_prefix_are_not_equal_content():
    executor = ScriptedExecutor(make_layout(8))
    executor.execute(plan(0, ("a", 0, 9), new_requests=[new("a", [*range(4), *range(4), 9], [[1, 2, 3]])]))
    refuse(executor, plan(1, ("b", 4, 1), new_requests=[new("b", [*range(4), 9], [[2, 5]])]), "not its own")


def test_a_sound_hit_runs():
    executor = started()
    executor.execute(plan(1, ("b", 4, 1), new_requests=[new("b", range(5), [[1, 4]])]))


def test_a_block_reused_while_its_owner_still_reads_it():
    executor = started()
    executor.execute(plan(1, ("b", 0, 4), new_requests=[new("b", range(50, 54), [[1]])]))
    refuse(executor, plan(2, ("a", 5, 1)), "a reads KV that is not its own")


def test_two_requests_writing_different_content_into_one_block():
    executor = ScriptedExecutor(make_layout(8))
    shares = [("a", 0, 3), ("b", 0, 3)]
    requests = [new("a", range(3), [[1]]), new("b", range(9, 12), [[1]])]
    refuse(executor, plan(0, *shares, new_requests=requests), "another request writes, too")


def test_two_requests_writing_equal_content_into_one_block_are_legal():
    executor = ScriptedExecutor(make_layout(8))
    requests = [new("a", range(3), [[1]]), new("b", range(3), [[1]])]
    executor.execute(plan(0, ("a", 0, 3), ("b", 0, 3), new_requests=requests))


def test_blocks_of_another_group_are_not_ones_own():
    executor = ScriptedExecutor(make_layout(8, layers=(FULL, WINDOWED)))
    none = ((), ())
    executor.execute(plan(0, ("a", 0, 5, none), new_requests=[new("a", range(5), [[1, 2], [3, 4]])]))
    executor.execute(plan(1, ("b", 4, 1, none), new_requests=[new("b", range(5), [[1, 5], [3, 6]])]))
    refuse(executor, plan(2, ("c", 4, 1, none), new_requests=[new("c", range(5), [[3, 7], [1, 8]])]), "of group 0")


def test_a_copied_block_can_be_read_as_far_as_it_was_copied():
    executor = started()
    executor.execute(
        plan(
            1,
            ("b", 3, 2),
            new_requests=[new("b", [0, 1, 2, 7, 8], [[3, 4]])],
            block_copies=(BlockCopy(0, 1, 3, 3),),
        )
    )
    refuse(
        executor,
        plan(
            2,
            ("c", 3, 1),
            new_requests=[new("c", [0, 1, 2, 9], [[5]])],
            block_copies=(BlockCopy(0, 1, 5, 2),),
        ),
        "positions \\[2\\]",
    )


def test_a_forgotten_request_must_be_introduced_again():
    executor = started()
    executor.execute(plan(1, ("b", 0, 1), new_requests=[new("b", [1], [[3]])], finished_request_ids=("a",)))
    assert executor.held_request_ids == {"b"}
    refuse(executor, plan(2, ("a", 5, 1)), "never introduced")


def test_garbage_of_a_failed_part_is_only_forgiven_in_its_own_step():
    def run(last):
        executor = ScriptedExecutor(make_layout(8), faults=lambda name, _: "broken" if name == "a" else None)
        requests = [new("a", range(4), [[1]]), new("b", [*range(4), last], [[1, 2]])]
        result = executor.execute(plan(0, ("a", 0, 4), ("b", 4, 1), new_requests=requests))
        assert result.errors["a"] == "broken" and result.token_ids[0] == ()
        refuse(executor, plan(1, ("c", 4, 1), new_requests=[new("c", range(5), [[1, 3]])]), "not its own")
        return result

    shows, misleads = [run(last).errors.get("b") for last in range(16)].index("it reads garbage"), 0
    while "b" in (result := run(misleads)).errors:
        misleads += 1
    assert run(shows).token_ids[1] == ()
    alone = new("b", [*range(4), misleads], [[1, 2]])
    sound = ScriptedExecutor(make_layout(8)).execute(plan(0, ("b", 0, 5), new_requests=[alone]))
    assert result.token_ids[1] != sound.token_ids[0]


def test_tokens_depend_on_known_tokens_and_seed_only():
    def first_token(tokens, blocks, *, seed=1, computed=0, executor=None):
        executor = executor or ScriptedExecutor(make_layout(8))
        data = new("x", tokens, [blocks], params=SamplingParams(seed=seed))
        return executor.execute(plan(0, ("x", computed, len(tokens) - computed), new_requests=[data])).token_ids[0]

    assert first_token(range(5), [1, 2]) == first_token(range(5), [7, 3])
    assert first_token(range(5), [1, 2]) != first_token(range(5), [1, 2], seed=2)
    assert first_token(range(5), [1, 2]) != first_token([*range(4), 9], [1, 2])


def test_a_resumed_request_goes_on_where_it_was():
    whole = ScriptedExecutor(make_layout(8))
    (first,) = whole.execute(plan(0, ("a", 0, 5), new_requests=[new("a", range(5), [[1, 2]])])).token_ids[0]
    (second,) = whole.execute(plan(1, ("a", 5, 1))).token_ids[0]
    (third,) = whole.execute(plan(2, ("a", 6, 1))).token_ids[0]
    known = [*range(5), first, second]
    resumed = ScriptedExecutor(make_layout(8))
    data = new("a", known, [[3, 4]], num_prompt=5)
    assert resumed.execute(plan(0, ("a", 0, 7), new_requests=[data])).token_ids[0] == (third,)


def test_close_forgets_everything_and_can_be_repeated():
    executor = started()
    executor.close()
    executor.close()
    assert executor.held_request_ids == frozenset()
