"""The admission forecast: what running requests will need, and who is admitted for it."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.config import SchedulerConfig
from octavo.errors import ConfigError
from octavo.scheduling.forecast import Life, OutputLengths, peak_blocks, reserved_blocks
from tests.scheduling.harness import FULL, WINDOWED, Engine, alone, make_request

# ---- the arithmetic


def test_the_peak_accounts_for_blocks_freed_by_those_that_end_first():
    """Two requests: 10 blocks for 5 steps more, and 2 blocks growing to 12 in 50 steps. The first is gone by then."""
    short, long = Life(5, 10, 10), Life(50, 2, 12)
    assert peak_blocks([short, long]) == 13  # at the end of the short one: 10 + 2 + a block grown in 5 steps
    assert reserved_blocks([short, long]) == 22


def test_the_peak_of_one_is_its_end():
    assert peak_blocks([Life(7, 3, 5)]) == 5
    assert peak_blocks([]) == 0


lives = st.builds(
    lambda remaining, now, growth: Life(remaining, now, now + growth),
    st.integers(1, 50),
    st.integers(0, 20),
    st.integers(0, 20),
)


@given(st.lists(lives, max_size=12))
def test_the_peak_is_the_largest_sum_over_all_steps(some):
    """Against the sum at each step: blocks grow evenly, and are free after the last step."""
    longest = max((life.remaining for life in some), default=0)
    sums = [
        sum(life.now + (life.end - life.now) * t / life.remaining for life in some if life.remaining >= t)
        for t in range(1, longest + 1)
    ]
    peak = max(sums, default=0)
    assert peak - 1e-6 <= peak_blocks(some) < peak + 1
    assert peak_blocks(some) <= reserved_blocks(some)


@given(st.lists(lives, max_size=8), lives)
def test_one_more_request_never_lowers_the_peak(some, more):
    assert peak_blocks([*some, more]) >= peak_blocks(some)


# ---- learned lengths


def learned(quantile, lengths):
    known = OutputLengths(quantile)
    for length in lengths:
        known.learn(length)
    return known


def test_before_enough_have_ended_a_share_of_what_is_allowed_is_guessed():
    known = learned(0.5, [10] * 15)
    assert known.remaining(0, 100) == 50
    assert known.remaining(0, 100_000) == 512
    assert known.remaining(0, 1) == 1


def test_a_guess_is_the_quantile_of_answers_at_least_as_long():
    known = learned(0.7, range(1, 101))
    assert known.remaining(0, 1000) == 71
    assert known.remaining(50, 1000) == 86 - 50
    assert known.remaining(0, 40) == 40
    assert learned(0.0, range(1, 101)).remaining(50, 1000) == 1


def test_an_answer_longer_than_all_is_taken_to_be_at_its_half():
    known = learned(0.7, [10] * 20)
    assert known.remaining(30, 1000) == 30
    assert known.remaining(30, 7) == 7


def test_only_the_last_answers_count_and_memory_is_bounded():
    known = learned(0.5, [1000] * 300 + [10] * 256)
    assert known.remaining(0, 10_000) == 10
    assert len(known._sorted) == len(known._recent) == 256


@given(st.lists(st.integers(1, 500), max_size=600), st.integers(0, 600), st.integers(1, 600), st.floats(0, 1))
def test_a_guess_is_at_least_one_token_and_never_more_than_allowed(lengths, generated, at_most, quantile):
    assert 1 <= learned(quantile, lengths).remaining(generated, at_most) <= at_most


# ---- admission


def decodes(conservativeness, *, num_blocks=20, count=8, **options):
    """Requests of 2 blocks that grow to 5 each: 8 of them want 40 blocks."""
    engine = Engine(num_blocks=num_blocks, max_model_len=32, admission_conservativeness=conservativeness, **options)
    engine.add(*[make_request(f"r{i}", 8, max_tokens=12) for i in range(count)])
    return engine


def test_at_0_whatever_fits_now_is_admitted_and_preempted_later():
    engine = decodes(0.0)
    engine.step()
    assert engine.num_running == 4  # the budget of 32 tokens
    engine.step()
    assert engine.num_running == 8
    engine.run()
    assert engine.counters["preemptions"] > 0


def test_at_1_everything_they_may_come_to_hold_must_fit():
    engine = decodes(1.0)
    engine.run()
    assert engine.counters["preemptions"] == 0
    assert max(len(plan.request_ids) for plan in engine.plans) == 4


def test_at_1_shared_blocks_count_once():
    """Four share 4 of their 6 blocks: 4 + 4 * 2 = 12 blocks are enough, where 24 would be needed if all were own."""
    engine = Engine(num_blocks=12, max_model_len=32, admission_conservativeness=1.0, max_num_batched_tokens=100)
    engine.add(*[make_request(f"r{i}", [*range(16), 100 + i], max_tokens=8) for i in range(4)])
    engine.step()
    assert engine.num_running == 4
    engine.run()
    assert engine.counters["preemptions"] == 0


def test_between_a_request_that_ends_soon_makes_room_for_one_that_starts():
    """`old` is almost done: at its peak the newcomer needs what `old` will have given back. At 1 it waits for that."""

    def steps_until_b_runs(conservativeness):
        engine = Engine(num_blocks=8, max_model_len=32, admission_conservativeness=conservativeness)
        for length in (17,) * 20:
            engine.scheduler._admission._lengths.learn(length)
        engine.add(make_request("old", 4, max_tokens=17))
        for _ in range(14):
            engine.step()
        engine.add(make_request("b", 8, max_tokens=17))
        waited = 0
        while "b" not in engine.step():
            waited += 1
        engine.run()
        assert engine.counters["preemptions"] == 0
        return waited

    assert steps_until_b_runs(0.5) == 0
    assert steps_until_b_runs(1.0) > 0


def test_a_lone_request_starts_whatever_is_foreseen():
    engine = Engine(num_blocks=8, max_model_len=32, admission_conservativeness=1.0)
    request = make_request("a", 8, max_tokens=24)
    assert engine.generate(request) == [alone(request)]


def test_what_was_refused_is_looked_at_again_only_after_a_change(monkeypatch):
    engine = decodes(1.0)
    engine.run()
    engine.add(*[make_request(f"s{i}", 8, max_tokens=12) for i in range(8)])
    engine.step()
    counted = []
    look_ahead = engine.scheduler._admission._look_ahead
    monkeypatch.setattr(
        engine.scheduler._admission, "_look_ahead", lambda running: counted.append(1) or look_ahead(running)
    )
    for _ in range(8):
        engine.step()
    assert engine.num_running == 4 and engine.num_waiting == 4
    assert len(counted) <= 1


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_conservativeness_outside_0_and_1_is_refused(value):
    with pytest.raises(ConfigError, match=r"admission_conservativeness=.*: must be in \[0, 1\]"):
        SchedulerConfig(admission_conservativeness=value)


@settings(max_examples=60)
@given(st.data())
def test_at_1_nobody_is_ever_preempted(data):
    """Whatever the prompts, chunks, hits, twins and lengths; only more urgent requests may push somebody out."""
    engine = Engine(
        num_blocks=data.draw(st.integers(10, 30)),
        max_model_len=40,
        admission_conservativeness=1.0,
        max_bypasses=data.draw(st.sampled_from([0, 16])),
        max_num_batched_tokens=data.draw(st.integers(1, 64)),
        scheduling_policy=data.draw(st.sampled_from(["fcfs", "prefix"])),
        layers=data.draw(st.sampled_from([(FULL,), (FULL,), (WINDOWED,)])),
        sub_block_match=data.draw(st.booleans()),
    )
    for i in range(data.draw(st.integers(2, 12))):
        prompt = [*range(data.draw(st.integers(1, 24))), *data.draw(st.lists(st.integers(0, 1), max_size=4))]
        engine.add(make_request(f"r{i}", prompt, data.draw(st.integers(1, 12)), eos=tuple(range(0, 1000, 9))))
        if data.draw(st.booleans()):
            engine.step()
    engine.run()
    assert engine.counters["preemptions"] == 0


def test_more_conservative_means_fewer_preemptions_and_a_forecast_beats_hope():
    """A saturated pool with answers of very different lengths; figures of a run, so only their order is asserted."""

    def run(conservativeness):
        rng = random.Random(5)
        engine = Engine(num_blocks=60, max_model_len=80, admission_conservativeness=conservativeness, max_num_seqs=32)
        for i in range(120):
            engine.add(make_request(f"r{i}", rng.randint(2, 16), max_tokens=rng.choice([4, 8, 60])))
        engine.run()
        return engine.counters["preemptions"], engine.counters["steps"]

    preemptions = {share: run(share)[0] for share in (0.0, 0.7, 1.0)}
    assert preemptions[0.0] > 2 * preemptions[0.7] >= preemptions[1.0] == 0
