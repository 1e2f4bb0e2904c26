"""Reasoning followed through an answer: where it begins, ends, and is ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.decoding.reasoning import ReasoningPhase, ReasoningTracker
from octavo.errors import InvalidRequestError
from octavo.request.reasoning import ReasoningSpec

BEGIN, END, TEXT = (8, 9), (1,), 5
FORCED = (3, 1, 4)
BUDGET_3 = ReasoningSpec(begins=(BEGIN,), ends=(END,), forced_end=FORCED, budget=3)


def generate(spec: ReasoningSpec, wanted: list[int], count: int = 30) -> list[int]:
    """Tokens of a model that would write `wanted` and then TEXT, where nothing is forced."""
    tracker, outputs, drawn = ReasoningTracker(spec), [], iter(wanted)
    for _ in range(count):
        forced = tracker.forced_token
        outputs.append(next(drawn, TEXT) if forced is None else forced)
        tracker.push(outputs[-1])
    return outputs


def test_a_used_up_budget_forces_the_end() -> None:
    assert generate(BUDGET_3, [*BEGIN, 11, 12, 13, 14], 12) == [*BEGIN, 11, 12, 13, *FORCED, 14, TEXT, TEXT, TEXT]


def test_an_open_prompt_counts_from_the_first_token() -> None:
    spec = ReasoningSpec(ends=(END,), forced_end=FORCED, budget=2, is_open=True)
    assert generate(spec, [11, 12, 13], 7) == [11, 12, *FORCED, 13, TEXT]


def test_a_budget_of_none_forces_at_once() -> None:
    spec = ReasoningSpec(ends=(END,), forced_end=FORCED, budget=0, is_open=True)
    assert generate(spec, [11], 5) == [*FORCED, 11, TEXT]


def test_an_end_within_the_budget_is_left_alone() -> None:
    wanted = [*BEGIN, 11, 12, *END, 13, 14, 15, 16]
    assert generate(BUDGET_3, wanted, len(wanted)) == wanted


def test_without_a_budget_nothing_is_forced() -> None:
    spec = ReasoningSpec(begins=(BEGIN,), ends=(END,), is_open=True)
    assert generate(spec, [11] * 50, 50) == [11] * 50


def test_an_answer_without_reasoning_is_left_alone() -> None:
    assert generate(BUDGET_3, [8, 11, 9, 8], 9) == [8, 11, 9, 8, *[TEXT] * 5]


def test_a_later_marker_is_text_unless_reasoning_may_reopen() -> None:
    wanted = [*BEGIN, 11, *END, 12, *BEGIN, 13, 14, 15, 16]
    assert generate(BUDGET_3, wanted, len(wanted)) == wanted
    again = ReasoningSpec(begins=(BEGIN,), ends=(END,), forced_end=FORCED, budget=3, reopens=True)
    assert generate(again, wanted, 14)[:11] == [*BEGIN, 11, *END, 12, *BEGIN, 13, *FORCED][:11]


def test_a_budget_that_is_used_up_holds_for_all_parts() -> None:
    spec = ReasoningSpec(begins=(BEGIN,), ends=(END,), forced_end=END, budget=1, reopens=True)
    assert generate(spec, [*BEGIN, 11, *BEGIN, 12], 7) == [*BEGIN, 11, *END, *BEGIN, *END][:7]


def test_an_end_marker_that_the_budget_cuts_is_written_whole() -> None:
    spec = ReasoningSpec(ends=((1, 2),), forced_end=(1, 2), budget=2, is_open=True)
    assert generate(spec, [11, 1, 2], 6) == [11, 1, 1, 2, 2, TEXT]


def test_an_end_inside_what_is_forced_does_not_cut_it() -> None:
    tracker = ReasoningTracker(ReasoningSpec(ends=(END,), forced_end=FORCED, budget=0, is_open=True), FORCED[:2])
    assert tracker.phase is ReasoningPhase.INSIDE and tracker.forced_token == FORCED[2]


def test_what_a_grammar_has_to_know() -> None:
    """It binds an answer without reasoning from the start, one with reasoning from behind its end."""
    plain = ReasoningTracker(BUDGET_3)
    assert (plain.is_free, plain.opening_ids) == (False, (8,))
    plain.push(TEXT)
    assert (plain.is_free, plain.opening_ids) == (False, ())
    thinking = ReasoningTracker(BUDGET_3, [8])
    assert (thinking.is_free, thinking.opening_ids) == (True, (9,))
    states = []
    for token_id in (9, 11, *END, TEXT):
        thinking.push(token_id)
        states.append((thinking.is_free, thinking.opening_ids))
    assert states == [(True, ()), (True, ()), (False, ()), (False, ())]


specs = st.builds(
    lambda ends, budget, opened, reopens: ReasoningSpec(
        begins=(BEGIN, (7,)),
        ends=ends,
        forced_end=(3, *ends[0]),
        budget=budget,
        is_open=opened,
        reopens=reopens,
    ),
    st.sampled_from([((1,),), ((1, 2),), ((1, 2), (4,))]),
    st.integers(-1, 6),
    st.booleans(),
    st.booleans(),
)


@given(spec=specs, wanted=st.lists(st.integers(1, 9), max_size=40), cut=st.integers(0, 40))
def test_replaying_outputs_restores_the_state(spec: ReasoningSpec, wanted: list[int], cut: int) -> None:
    outputs = generate(spec, wanted, 40)
    going, resumed = ReasoningTracker(spec, outputs[:cut]), ReasoningTracker(spec)
    for token_id in outputs[:cut]:
        resumed.push(token_id)
    for token_id in outputs[cut:]:
        assert (going.phase, going.forced_token, going.opening_ids) == (
            resumed.phase,
            resumed.forced_token,
            resumed.opening_ids,
        )
        going.push(token_id)
        resumed.push(token_id)


@given(spec=specs, wanted=st.lists(st.integers(1, 9), max_size=60))
def test_no_more_reasoning_than_the_budget(spec: ReasoningSpec, wanted: list[int]) -> None:
    """Tokens drawn inside reasoning, counted independently of the tracker's own counters."""
    tracker, drawn, num_inside = ReasoningTracker(spec), iter(wanted), 0
    for _ in range(60):
        forced = tracker.forced_token
        num_inside += tracker.phase is ReasoningPhase.INSIDE and forced is None
        tracker.push(next(drawn, TEXT) if forced is None else forced)
    assert spec.budget < 0 or num_inside <= spec.budget


@pytest.mark.parametrize(
    "fields",
    [
        {"ends": (END,), "budget": 3},
        {"ends": (END,), "budget": -2, "forced_end": END},
        {"ends": (END,), "budget": True, "forced_end": END},
        {"ends": (), "budget": 3, "forced_end": END},
        {"ends": ((),), "budget": 3, "forced_end": END},
        {"ends": ((1,) * 65,)},
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        ReasoningSpec(**fields)  # type: ignore[arg-type]
    assert caught.value.field == "thinking_token_budget"
