"""A fault at any stage ends the request that it befalls; the others have the tokens and logprobs they have alone."""

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import times
from tests.equality.conftest import COMMON, TinyBaseline, TinyFile
from tests.equality.faults import (
    FAULTS,
    MARK,
    BesideVictims,
    Disturbed,
    Fault,
    assert_failed,
    at_once,
    disturbed_llm,
    in_turns,
)
from tests.equality.random_faults import MARKS, MarkedExecutor, MarkedSampler
from tests.equality.settings import Alone, Fields, assert_settled
from tests.equality.tiny_models import POISON
from tests.equality.transcript import Answer, assert_same
from tests.equality.workload import Request, Workload, greedy, seeded

MODEL = "int8 activations"
WAYS: dict[str, tuple[Fields, bool]] = {
    "all at once": ({}, False),
    "streams, chunks of 24": ({"max_num_batched_tokens": 24, "max_num_seqs": 24}, True),
    "planned ahead": ({"async_scheduling": True, "block_size": 4}, False),
    "planned ahead, streams, chunks of 40": ({"async_scheduling": True, "max_num_batched_tokens": 40}, True),
    "drafts of the model itself": ({"speculation": "draft:itself", "num_speculative_tokens": 4}, False),
    "drafts of the model itself, planned ahead, streams": (
        {"speculation": "draft:itself", "num_speculative_tokens": 4, "async_scheduling": True, "max_num_seqs": 24},
        True,
    ),
}
COVERED_BY_OTHERS = {"all at once", "drafts of the model itself"}


def named(fields: Fields, model: str) -> Fields:
    """Fields in which a model that drafts for itself has its name."""
    return {name: f"draft:{model}" if value == "draft:itself" else value for name, value in fields.items()}


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.long] * (way in COVERED_BY_OTHERS)) for way in WAYS]
)
@pytest.mark.parametrize("stage", FAULTS)
def test_a_fault_ends_its_request_alone(tiny_baseline: TinyBaseline, stage: str, way: str) -> None:
    fields, streamed = WAYS[way]
    baseline = tiny_baseline(MODEL)
    answered = [choice.token_ids for answer in baseline.answers.values() for choice in answer.choices]
    assert not any(MARK in ids for ids in answered), "another token must mark the victims"
    baseline.check(BesideVictims(FAULTS[stage], named(fields, baseline.model), streamed))


@pytest.mark.parametrize("fields", [{}, {"async_scheduling": True}], ids=["sync", "planned ahead"])
def test_bad_requests_that_come_alone_one_after_the_other_end_nothing_but_themselves(
    tiny_baseline: TinyBaseline, fields: Fields
) -> None:
    baseline, fault = tiny_baseline(MODEL), FAULTS["kernel refuses a prompt"]
    good = next(request for request in baseline.workload if request.params.n == 1)
    bad = fault.victims(baseline.workload)[0]
    with disturbed_llm(baseline.model, {**baseline.fields, **fields}, fault, Disturbed(fault)) as llm:
        for _ in range(20):
            assert_failed(at_once(llm, [bad])[bad.name])
        answer = at_once(llm, [good])[good.name]
    assert_same({good.name: baseline.answers[good.name].transcript()}, {good.name: answer.transcript()})


ANY = Fault(MarkedExecutor, MarkedSampler, spoils_text=True)


LENGTHS = (0, 8, 16, 17, 31, 32, 40, 48, 55, 64, 64, 80)
"""How much of a common text the requests begin with."""
NEVER = dict.fromkeys([*MARKS.values(), *POISON], -100.0)
"""Logit biases that keep the marks out of answers."""


def sharing_workload() -> Workload:
    """Short requests that share beginnings of many lengths."""
    words = random.Random(19)
    text = [words.randrange(8, 440) for _ in range(max(LENGTHS))]
    kinds = ({"temperature": 0.0}, {"frequency_penalty": 0.5}, {"n": 2}, {"prompt_logprobs": 1}, {"top_k": 9})
    return tuple(
        Request(
            f"request {i}",
            (*text[:length], *(words.randrange(8, 440) for _ in range(3 + i % 7))),
            seeded(i, 4 + i % 7, logprobs=1, logit_bias=NEVER, **kinds[i % len(kinds)]),
        )
        for i, length in enumerate(LENGTHS)
    )


@pytest.fixture(scope="module")
def sharing_answers(tiny_file: TinyFile) -> Mapping[str, Answer]:
    """What each of them gets alone."""
    return Alone().answers(tiny_file(MODEL), COMMON, sharing_workload())


def befall(request: Request, stage: str, at: int) -> Request:
    """The request as a victim. `at`: how far from the prompt's end the fault lies, or behind how many drawn tokens."""
    name, prompt = f"{request.name}, {stage} {at}", list(request.prompt)
    if stage == "text":
        return replace(request, name=name, params=greedy(6, allowed_token_ids=(MARK,)))
    count = 1 + at % 3 if stage.startswith("sampler") else 1
    place = len(prompt) - at % len(prompt)
    prompt[place:place] = [MARKS[stage]] * count
    return Request(name, tuple(prompt), request.params.replace(max_tokens=count + 1, min_tokens=count + 1))


cases = st.lists(
    st.tuples(st.integers(0, 11), st.none() | st.sampled_from(sorted(MARKS)), st.integers(0, 6) | st.integers(0, 90)),
    min_size=2,
    max_size=14,
    unique_by=lambda case: (case[0], case[1], None if case[1] is None else case[2]),
)
engines = st.fixed_dictionaries(
    {
        "async_scheduling": st.booleans(),
        "block_size": st.sampled_from([4, 16]),
        "max_num_batched_tokens": st.sampled_from([8, 32, 2048]),
        "max_num_seqs": st.sampled_from([3, 16]),
        "sub_block_match": st.booleans(),
        "scheduling_policy": st.sampled_from(["fcfs", "prefix"]),
    }
)
drafts = st.sampled_from(
    [{}, {}, {"speculation": "suffix"}]
    + [
        {"speculation": name, "num_speculative_tokens": count}
        for name in ("suffix", "draft:itself")
        for count in (1, 4)
    ]
)


@settings(max_examples=times(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases=cases, fields=engines, drafted=drafts, room=st.integers(1, 4), streamed=st.booleans())
def test_any_faults_among_any_requests(
    tiny_file: TinyFile,
    sharing_answers: Mapping[str, Answer],
    cases: list[tuple[int, str | None, int]],
    fields: Fields,
    drafted: Fields,
    room: int,
    streamed: bool,
) -> None:
    """In pools with room for a few of the requests, so that some are preempted, too. Nobody hangs: runs are counted."""
    workload = sharing_workload()
    requests = [workload[i] if stage is None else befall(workload[i], stage, at) for i, stage, at in cases]
    pool = {"max_model_len": 112, "num_kv_blocks": 1 + 2 * room * 112 // int(str(fields["block_size"]))}
    model = tiny_file(MODEL)
    with disturbed_llm(model, {**COMMON, **fields, **named(drafted, model), **pool}, ANY, Disturbed(ANY)) as llm:
        answers = (in_turns if streamed else at_once)(llm, requests)
        assert_settled(llm.load())
        llm._engine._core._scheduler._manager.check()  # type: ignore[attr-defined]
    sound = [request.name for request, (_, stage, _) in zip(requests, cases, strict=True) if stage is None]
    for request in requests:
        if request.name not in sound:
            assert_failed(answers[request.name])
    assert_same(
        {name: sharing_answers[name].transcript() for name in sound},
        {name: answers[name].transcript() for name in sound},
    )
