"""When a request ends, and with which reason."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.request.outputs import LogprobRow
from octavo.request.repetition import RepetitionDetection
from octavo.scheduling.plan import StepResult
from tests.scheduling.harness import Engine, make_request


def scripted(*outputs):
    """A script that gives these tokens one after another, then 0."""
    return lambda tokens, num_prompt, params: [*outputs, *[0] * 100][len(tokens) - num_prompt]


def run(request, *outputs, **options):
    engine = Engine(script=scripted(*outputs), **options)
    engine.generate(request)
    return engine.tokens["a"], engine.outputs["a"][-1]


def test_an_end_of_sequence_id_ends_with_stop():
    tokens, last = run(make_request("a", 3, max_tokens=9, eos=(7, 8)), 5, 8, 6)
    assert (tokens, last.finish_reason, last.stop_token_id) == ([5, 8], "stop", None)


def test_a_stop_id_ends_with_stop_and_is_named():
    tokens, last = run(make_request("a", 3, max_tokens=9, eos=(7,), stop_token_ids=(4,)), 5, 4, 7)
    assert (tokens, last.finish_reason, last.stop_token_id) == ([5, 4], "stop", 4)


def test_end_of_sequence_comes_before_stop_ids():
    _, last = run(make_request("a", 3, max_tokens=9, eos=(7,), stop_token_ids=(7,)), 7)
    assert (last.finish_reason, last.stop_token_id) == ("stop", None)


def test_max_tokens_ends_with_length():
    tokens, last = run(make_request("a", 3, max_tokens=3), 1, 2, 3, 4)
    assert (tokens, last.finish_reason) == ([1, 2, 3], "length")


def test_the_context_ends_with_length():
    tokens, last = run(make_request("a", 10, max_tokens=100), 1, 2, 3, 4, 5, max_model_len=14)
    assert (tokens, last.finish_reason) == ([1, 2, 3, 4], "length")


@pytest.mark.parametrize("ending", [{"eos": (7,)}, {"stop_token_ids": (7,)}])
def test_a_stop_on_the_last_allowed_token_is_a_stop(ending):
    tokens, last = run(make_request("a", 3, max_tokens=2, **ending), 1, 7)
    assert (tokens, last.finish_reason) == ([1, 7], "stop")


def test_length_beats_min_tokens():
    """min_tokens beyond the context cannot be honoured; the context can."""
    tokens, last = run(make_request("a", 10, max_tokens=50, min_tokens=50), 1, 2, 3, max_model_len=13)
    assert (tokens, last.finish_reason) == ([1, 2, 3], "length")


TWO_THRICE = RepetitionDetection(min_pattern_size=2, max_pattern_size=2, min_count=3)


def test_a_repetition_ends_with_its_last_token():
    tokens, last = run(make_request("a", 3, max_tokens=20, repetition_detection=TWO_THRICE), 9, *[1, 2] * 9)
    assert (tokens, last.finish_reason, last.stop_token_id) == ([9, 1, 2, 1, 2, 1, 2], "repetition", None)


def test_the_prompt_is_no_part_of_a_repetition():
    tokens, _ = run(make_request("a", [1, 2] * 6, max_tokens=20, repetition_detection=TWO_THRICE), *[1, 2] * 9)
    assert tokens == [1, 2, 1, 2, 1, 2]


@pytest.mark.parametrize(("ending", "reason"), [({"eos": (2,)}, "stop"), ({"max_tokens": 6}, "length")])
def test_end_of_sequence_and_length_come_before_repetition(ending, reason):
    script = [1, 3, 1, 3, 1, 2] if reason == "stop" else [1, 2] * 3
    wanted = RepetitionDetection(max_pattern_size=1, min_count=2) if reason == "stop" else TWO_THRICE
    request = make_request("a", 3, **{"max_tokens": 9, **ending}, repetition_detection=wanted)
    tokens, last = run(request, *script)
    assert (tokens, last.finish_reason) == (script, reason)


def test_below_min_tokens_no_repetition_ends_and_one_that_lasts_does_then():
    request = make_request("a", 3, max_tokens=20, min_tokens=8, repetition_detection=TWO_THRICE)
    tokens, last = run(request, *[1, 2] * 9)
    assert (tokens, last.finish_reason) == ([1, 2] * 4, "repetition")


@pytest.mark.parametrize(
    "options", [{"max_num_batched_tokens": 3}, {"num_blocks": 5, "admission_conservativeness": 0.0}]
)
def test_preemption_and_small_steps_change_nothing_about_a_repetition(options):
    """Two requests that together do not fit; the one preempted has half of its repetition behind it."""
    engine = Engine(script=scripted(9, 8, *[1, 2, 3] * 9), **options)
    detection = RepetitionDetection(max_pattern_size=3, min_count=3)
    engine.generate(*[make_request(name, 4, max_tokens=16, repetition_detection=detection) for name in "ab"])
    assert engine.tokens == {name: [9, 8, *[1, 2, 3] * 3] for name in "ab"}
    assert engine.finished == {"a": "repetition", "b": "repetition"}
    assert "num_blocks" not in options or engine.counters["preemptions"] > 0


def test_under_ignore_eos_the_request_has_no_eos_ids_and_only_stop_ids_stop_it():
    tokens, last = run(make_request("a", 3, max_tokens=9, ignore_eos=True, stop_token_ids=(4,)), 7, 7, 4)
    assert (tokens, last.stop_token_id) == ([7, 7, 4], 4)


def test_the_sampler_masks_what_stops_until_min_tokens():
    plain, masked = Engine(), Engine()
    request = make_request("a", 3, max_tokens=40, eos=tuple(range(500)))
    (tokens,) = plain.generate(request)
    assert len(tokens) < 10 and plain.finished["a"] == "stop"
    (tokens,) = masked.generate(
        make_request("a", 3, max_tokens=40, min_tokens=12, eos=tuple(range(250)), stop_token_ids=tuple(range(250, 500)))
    )
    assert len(tokens) >= 12 and all(token >= 500 for token in tokens[:12])


def test_tokens_behind_the_one_that_ends_are_dropped_with_their_logprobs():
    engine = Engine()
    engine.add(make_request("a", 3, max_tokens=9, eos=(7,), logprobs=0))
    rows = tuple(LogprobRow([token], [-float(token)], 1) for token in (5, 7, 6))
    (output,) = engine.scheduler.update(engine.plan(), StepResult(step=0, token_ids=((5, 7, 6),), logprobs=(rows,)), 0)
    assert output.new_token_ids == [5, 7] and output.new_logprobs == list(rows[:2])
    assert output.finish_reason == "stop"
    assert output.stats.num_output_tokens == 2 == engine.counters["generation_tokens"]
    assert not engine.scheduler.has_work


def run_in_parts(request, tokens, data):
    """An answer of these tokens, several of which may come with a step; what is kept of them, and the last output."""
    engine = Engine(max_model_len=64)
    engine.add(request)
    kept, left, last = [], tokens, None
    while engine.scheduler.has_work:
        plan = engine.plan()
        count = data.draw(st.integers(1, len(left)))
        result = StepResult(step=plan.step, token_ids=(tuple(left[:count]),))
        (last,) = engine.scheduler.update(plan, result, 0.0)
        engine.manager.check()
        kept += last.new_token_ids
        left = left[count:]
    return kept, last


@given(st.lists(st.integers(1, 3), min_size=24, max_size=30), st.integers(0, 9), st.data())
def test_any_partition_finds_the_same_repetition(script, min_tokens, data):
    detection = RepetitionDetection(max_pattern_size=3, min_count=3)
    request = make_request("a", 3, max_tokens=24, min_tokens=min_tokens, repetition_detection=detection)
    kept, last = run_in_parts(request, script, data)
    ends = [
        n
        for n in range(max(3, min_tokens), 24)
        if any(script[:n][-3 * size :] == script[n - size : n] * 3 for size in (1, 2, 3))
    ]
    assert kept == script[: ends[0] if ends else 24]
    assert last.finish_reason == ("repetition" if ends else "length")


@given(st.lists(st.integers(1, 20), min_size=1, max_size=30), st.data())
def test_any_partition_of_the_tokens_into_steps_gives_the_same_answer(script, data):
    request = make_request("a", 3, max_tokens=20, eos=(20,), stop_token_ids=(19,))
    kept, last = run_in_parts(request, [*script, 20], data)
    whole = [*script, 20][:20]
    ends = [i for i, token in enumerate(whole) if token >= 19]
    assert kept == whole[: ends[0] + 1] if ends else whole
    assert last.finish_reason == ("stop" if ends else "length")


@settings(max_examples=20)
@given(st.integers(1, 30), st.integers(1, 30))
def test_fewer_max_tokens_give_a_prefix(first, second):
    short, long = sorted((first, second))
    answers = [Engine().generate(make_request("a", 5, max_tokens=count))[0] for count in (short, long)]
    assert answers[1][:short] == answers[0] and len(answers[0]) == short
