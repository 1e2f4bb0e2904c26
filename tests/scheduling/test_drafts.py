"""Drafts in the plan: how many, with which blocks, and what comes of them."""

import pytest

from octavo.request.params import SamplingParams
from octavo.request.repetition import RepetitionDetection
from octavo.request.structured import StructuredKind, StructuredSpec
from tests.scheduling import draft_scripts
from tests.scheduling.harness import Engine, alone, make_request

STOP = 900


def counting(known, num_prompt, params: SamplingParams) -> int:
    """Output i is i, and STOP where the seed says."""
    place = len(known) - num_prompt
    return STOP if place == params.seed else place


def engine_of(num_drafts=5, drafts=draft_scripts.right, script=counting, **options) -> Engine:
    return Engine(num_drafts=num_drafts, drafts=drafts, script=script, **options)


def drafts_planned(engine: Engine) -> list[tuple[int, ...]]:
    return [plan.num_draft_tokens for plan in engine.plans]


def test_right_drafts_save_steps_and_the_rest_is_as_without():
    engine = engine_of()
    (tokens,) = engine.generate(make_request("a", 6, 12, seed=99))
    assert tokens == list(range(12))
    assert drafts_planned(engine) == [(), (5,), (4,)]  # the last of 12 comes of the row before it
    stats = engine.stats("a")
    assert (stats.num_steps, stats.num_draft_tokens, stats.num_accepted_draft_tokens) == (3, 9, 9)
    assert stats.num_computed_tokens == 6 + 11 and stats.num_recomputed_tokens == 0


def test_wrong_drafts_cost_rows_and_nothing_else():
    engine = engine_of(drafts=draft_scripts.wrong)
    (tokens,) = engine.generate(make_request("a", 6, 12, seed=99))
    assert tokens == list(range(12)) and len(engine.plans) == 12
    assert engine.counters["accepted_draft_tokens"] == 0 < engine.counters["draft_tokens"]
    assert engine.stats("a").num_recomputed_tokens == 0


def test_drafts_take_what_is_left_of_the_budget():
    engine = engine_of(max_num_batched_tokens=16, drafts=draft_scripts.wrong)
    engine.add(make_request("a", 4, 8, seed=99))
    engine.step()
    engine.add(make_request("b", 13, 8, seed=99), make_request("c", 20, 8, seed=99))
    scheduled = engine.step()
    assert scheduled == {"a": 1, "b": 13, "c": 2} and engine.plans[-1].num_draft_tokens == ()
    assert engine.step() == {"a": 1, "b": 1, "c": 14}
    assert engine.step() == {"a": 5, "b": 6, "c": 4}  # a has room for five more tokens, c runs a chunk of its prompt
    assert engine.plans[-1].num_draft_tokens == (4, 5, 0)


def test_none_in_a_chunk_of_a_prompt():
    engine = engine_of(max_num_batched_tokens=4)
    engine.generate(make_request("a", 10, 3, seed=99))
    assert drafts_planned(engine)[:3] == [(), (), ()]


def test_none_beyond_the_context():
    engine = engine_of(max_model_len=12)
    (tokens,) = engine.generate(make_request("a", 10, 50, seed=99))
    assert tokens == [0, 1] and drafts_planned(engine) == [(), ()]
    (tokens,) = engine.generate(make_request("b", 8, 50, seed=99))
    assert tokens == [0, 1, 2, 3] and drafts_planned(engine)[2:] == [(), (2,)]


def test_look_ahead_blocks_come_and_go_with_the_step():
    engine = engine_of(drafts=draft_scripts.wrong, block_size=4)
    engine.add(make_request("a", 7, 6, seed=99))
    engine.step()
    free = engine.manager.num_free_blocks
    plan = engine.plan()
    assert plan.num_draft_tokens == (4,)
    assert plan.new_block_ids == (((plan.new_block_ids[0][0][0],),),)
    assert engine.manager.num_free_blocks == free - 1
    engine.finish(plan)
    assert engine.manager.num_free_blocks == free


def test_no_blocks_for_drafts_while_somebody_waits():
    engine = engine_of(drafts=draft_scripts.wrong, block_size=4, num_blocks=4, max_model_len=16)
    engine.add(make_request("a", 5, 9, seed=99))
    engine.step()
    engine.add(make_request("b", 9, 3, seed=99))
    plan = engine.plan()
    assert plan.request_ids == ("a",) and plan.num_draft_tokens == (2,)  # the rest of its block
    assert plan.new_block_ids == (((),),)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize(
    ("stop_at", "max_tokens", "reason"), [(2, 5, "stop"), (5, 5, "length"), (4, 5, "stop"), (0, 9, "stop")]
)
def test_the_first_end_in_the_order_of_tokens_wins(stop_at, max_tokens, reason, ahead):
    engine = engine_of(num_drafts=9, async_scheduling=ahead)
    request = make_request("a", 5, max_tokens, seed=stop_at, stop_token_ids=(STOP,), logprobs=1)
    (tokens,) = engine.generate(request)
    assert tokens == [*range(stop_at), STOP][:max_tokens]
    assert engine.finished["a"] == reason
    outputs = engine.outputs["a"]
    assert sum(len(output.new_logprobs) for output in outputs) == len(tokens) == engine.stats("a").num_output_tokens
    assert outputs[-1].stop_token_id == (STOP if reason == "stop" else None)


def test_a_repetition_ends_the_answer_inside_a_run():
    detection = RepetitionDetection(max_pattern_size=2, min_count=3)
    ends = []
    for num_drafts in (0, 9):
        engine = engine_of(num_drafts, script=lambda known, num_prompt, params: len(known) % 2)
        engine.generate(make_request("a", 5, 30, repetition_detection=detection))
        ends.append((engine.tokens["a"], engine.finished["a"]))
    assert ends[0] == ends[1] and ends[0][1] == "repetition"


def test_an_answer_of_a_shape_is_whole_inside_a_run():
    engine = engine_of(9, completes=lambda known, num_prompt, params: len(known) - num_prompt == 4)
    shape = StructuredSpec(kind=StructuredKind.REGEX, source="abcd")
    engine.generate(make_request("a", 5, 30, seed=99, structured_outputs=shape))
    assert engine.tokens["a"] == [0, 1, 2, 3] and engine.finished["a"] == "stop"
    assert engine.outputs["a"][-1].ends_with_text


def test_only_accepted_tokens_can_be_found():
    """After an answer whose drafts were wrong, a prompt that continues as they would have finds nothing of them."""
    engine = engine_of(drafts=draft_scripts.wrong, block_size=4, sub_block_match=True)
    first = make_request("a", range(4), 9, seed=99)
    engine.generate(first)
    asked = [*range(4), 0, 2, 3, 4, 5, 6]  # `wrong` proposed 2, 3, ... behind output 0
    engine.generate(make_request("b", asked, 1, seed=99))
    assert engine.stats("b").num_cached_tokens == 5
    engine.generate(make_request("c", [*range(4), *range(8), 77], 1, seed=99))
    assert engine.stats("c").num_cached_tokens == 12


def test_a_fault_behind_accepted_drafts_shows_after_them():
    fails_at = 9
    faults = {"faults": lambda name, computed: "broken" if computed >= fails_at else None}
    plain, drafted = engine_of(0, **faults), engine_of(5, **faults)
    for engine in (plain, drafted):
        engine.generate(make_request("a", 5, 12, seed=99))
    assert plain.tokens == drafted.tokens == {"a": [0, 1, 2, 3]}
    assert plain.finished == drafted.finished == {"a": "error"}


def test_preempted_with_drafts_it_comes_back_with_what_was_accepted():
    engine = engine_of(3, drafts=draft_scripts.half_right, script=None, num_blocks=9, max_model_len=32)
    wanted = [make_request(f"r{i}", 6 + i, 20) for i in range(4)]
    assert engine.generate(*wanted) == [alone(request, 32) for request in wanted]
    assert engine.counters["preemptions"] > 0 and engine.counters["accepted_draft_tokens"] > 0


def test_aborted_with_drafts_in_flight():
    engine = engine_of(async_scheduling=True)
    engine.add(make_request("a", 5, 30, seed=99), make_request("b", 5, 30, seed=99))
    for _ in range(3):
        engine.step()
    assert engine.scheduler.abort("a")
    engine.run()
    assert engine.tokens["b"] == list(range(30))
    assert engine.manager.num_free_blocks == engine.manager.num_blocks
