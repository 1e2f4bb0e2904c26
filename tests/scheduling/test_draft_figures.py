"""What the engine and the ledgers of its requests say of drafts, in examples that can be worked out by hand.

`tests/scheduling/draft_account.py` checks the same figures after every step of every test that speculates.
"""

import pytest

from octavo.request.outputs import RequestStats
from octavo.request.repetition import RepetitionDetection
from tests.scheduling import draft_scripts
from tests.scheduling.harness import Engine, make_request
from tests.scheduling.test_drafts import STOP, engine_of


def two_right_of_three(known, upcoming):
    """Three drafts, the last one wrong."""
    return [*upcoming[:2], 777][: len(upcoming)]


def figures(stats: RequestStats) -> tuple[int, int, int, list[int], int, int]:
    return (
        stats.num_drafts,
        stats.num_draft_tokens,
        stats.num_accepted_draft_tokens,
        stats.num_accepted_by_position,
        stats.num_saved_steps,
        stats.num_wasted_draft_tokens,
    )


def totals(engine: Engine) -> tuple[float, ...]:
    names = ("drafts", "draft_tokens", "accepted_draft_tokens", "saved_steps", "wasted_draft_tokens")
    return tuple(engine.counters[name] for name in names)


def test_one_request():
    """13 tokens: one of the prompt's step, then three, three, three and three."""
    engine = engine_of(3, drafts=two_right_of_three)
    engine.generate(make_request("a", 6, 13, seed=99))
    stats, load = engine.stats("a"), engine.scheduler.load()
    assert (stats.num_steps, stats.num_output_tokens) == (5, 13)
    assert figures(stats) == (4, 3 + 3 + 3 + 2, 8, [4, 4, 0], 8, 3)
    assert stats.mean_acceptance_length == load.drafts.mean_acceptance_length == 3
    assert totals(engine) == (4, 11, 8, 8, 3)
    assert (load.drafts.draft_tokens_by_position, load.drafts.accepted_by_position) == ([4, 4, 3], [4, 4, 0])
    assert engine.counters["computed_tokens"] == 6 + 4 + 11


def test_nothing_is_said_where_nobody_guesses():
    engine = Engine()
    engine.generate(make_request("a", 6, 5))
    load = engine.scheduler.load()
    assert figures(engine.stats("a")) == (0, 0, 0, [], 0, 0) and totals(engine) == (0, 0, 0, 0, 0)
    assert engine.stats("a").mean_acceptance_length is load.drafts is None


def test_a_draft_may_be_shorter_than_planned():
    engine = engine_of(5, drafts=lambda known, upcoming: upcoming[:1])
    engine.generate(make_request("a", 6, 9, seed=99))
    assert figures(engine.stats("a")) == (4, 4, 4, [4], 4, 0)


def test_who_has_none_to_offer_drafts_nothing():
    engine = engine_of(5, drafts=lambda known, upcoming: ())
    engine.generate(make_request("a", 6, 9, seed=99))
    assert engine.plans[1].num_draft_tokens == (5,)
    assert figures(engine.stats("a")) == (0, 0, 0, [], 0, 0) and totals(engine) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("ahead", [False, True])
def test_tokens_behind_an_end_save_no_step(ahead):
    """The scripted executor, unlike a sampler, runs on behind the end: right drafts there were run in vain."""
    engine = engine_of(6, async_scheduling=ahead)
    engine.generate(make_request("a", 6, 30, seed=3, stop_token_ids=(STOP,)))
    assert engine.tokens["a"] == [0, 1, 2, STOP]
    assert figures(engine.stats("a")) == (1, 6, 6, [1] * 6, 2, 4)
    if not ahead:
        assert totals(engine) == (1, 6, 6, 2, 4)
    else:  # what was planned before the end was known was run in vain, however right
        assert totals(engine) == (2, 12, 12, 2, 10) and engine.counters["discarded_tokens"] == 7


def test_a_repetition_leaves_the_rest_of_its_run_in_vain():
    detection = RepetitionDetection(max_pattern_size=1, min_count=3)
    engine = engine_of(6, script=lambda known, num_prompt, params: 5)
    engine.generate(make_request("a", 6, 30, repetition_detection=detection))
    assert engine.tokens["a"] == [5, 5, 5] and engine.finished["a"] == "repetition"
    assert figures(engine.stats("a")) == (1, 6, 6, [1] * 6, 1, 5)


def test_several_requests_add_up():
    engine = engine_of(3, drafts=two_right_of_three)
    names = [f"r{i}" for i in range(5)]
    engine.generate(*(make_request(name, 6, 4 + i, seed=99) for i, name in enumerate(names)))
    of_each = [figures(engine.stats(name)) for name in names]
    assert of_each == [
        (1, 2, 2, [1, 1], 2, 0),  # 1 + 3 tokens: room for two
        (1, 3, 2, [1, 1, 0], 2, 1),  # and a last one, which has room for none
        (2, 3 + 1, 3, [2, 1, 0], 3, 1),
        (2, 3 + 2, 4, [2, 2, 0], 4, 1),
        (2, 3 + 3, 4, [2, 2, 0], 4, 2),
    ]
    assert totals(engine) == tuple(sum(column[place] for column in of_each) for place in (0, 1, 2, 4, 5))


@pytest.mark.parametrize("ahead", [False, True])
def test_what_an_aborted_request_had_under_way_was_in_vain(ahead):
    engine = engine_of(3, async_scheduling=ahead)
    engine.add(make_request("a", 6, 30, seed=99))
    engine.step()
    engine.step()
    had = engine.scheduler.live("a").ledger()
    assert figures(had) == (1, 3, 3, [1, 1, 1], 3, 0)
    while engine.plan_ahead():
        pass
    under_way = len(engine.in_flight)
    assert engine.scheduler.abort("a")
    while engine.in_flight:
        engine.land()
    drafts = 1 + under_way
    assert totals(engine) == (drafts, 3 * drafts, 3 * drafts, 3, 3 * under_way)
    assert engine.scheduler.load().drafts.mean_acceptance_length == 4


def test_a_preempted_request_keeps_what_its_drafts_have_saved():
    engine = engine_of(3, drafts=draft_scripts.right, num_blocks=9, max_model_len=32)
    names = [f"r{i}" for i in range(4)]
    engine.generate(*(make_request(name, 6 + i, 20, seed=99) for i, name in enumerate(names)))
    assert engine.counters["preemptions"] > 0
    for name in names:
        stats = engine.stats(name)
        yields = sum(bool(output.new_token_ids) for output in engine.outputs[name])
        assert stats.num_output_tokens == 20 == yields + stats.num_saved_steps
        assert stats.num_steps >= yields
    assert sum(engine.stats(name).num_saved_steps for name in names) == engine.counters["saved_steps"] > 0


def test_a_part_that_fails_has_run_its_drafts_in_vain():
    engine = engine_of(3, faults=lambda name, computed: "broken" if computed >= 9 else None)
    engine.generate(make_request("a", 6, 30, seed=99))
    assert engine.tokens["a"] == [0, 1, 2] and engine.finished["a"] == "error"
    assert engine.plans[-1].num_draft_tokens == (3,)
    assert figures(engine.stats("a")) == (1, 3, 1, [1, 0, 0], 1, 2)
    assert totals(engine) == (2, 6, 1, 1, 5)


def test_a_ledger_that_was_told_does_not_change():
    engine = engine_of(3)
    engine.add(make_request("a", 6, 30, seed=99))
    engine.step()
    engine.step()
    told = engine.scheduler.live("a").ledger()
    engine.run()
    assert told.num_accepted_by_position == [1, 1, 1] and engine.stats("a").num_accepted_by_position[0] > 1
