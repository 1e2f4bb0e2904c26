"""Every parameter, on every path that a row can come, token by token as the oracle says."""

import random
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.request.outputs import FinishReason
from octavo.request.params import SamplingParams
from tests.sampling import oracle
from tests.sampling.conftest import COMMON
from tests.sampling.parameters import ALONE, FIELD, SEEN_OTHERWISE, mixtures, params_of
from tests.sampling.witness import Witness, witnessed

SMALL_POOL = {"num_kv_blocks": 34, "admission_conservativeness": 0.0}
AHEAD = {"async_scheduling": True}


@dataclass(frozen=True)
class Path:
    """A way for rows to come about, and what must have happened on it."""

    fields: dict[str, Any]
    counters: tuple[str, ...] = ()
    rounds: int = 1
    fails_after_sampling: bool = False


Answers = list[Any]
"""All that is seen of answers: tokens and logprobs, those by their bits."""
PATHS = {
    "all at once": Path({}),
    "prompts in chunks": Path({"max_num_batched_tokens": 16}),
    "one at a time": Path({"max_num_seqs": 1}),
    "after preemption": Path(SMALL_POOL, ("preemptions",)),
    "prefix hits": Path({}, ("cached_tokens",), rounds=2),
    "planned ahead": Path(AHEAD, ("discarded_tokens",)),
    "planned ahead, chunks, preemption": Path({**AHEAD, **SMALL_POOL, "max_num_batched_tokens": 16}, ("preemptions",)),
    "two threads": Path({"threads": 2}),
    "steps that fail and are run in parts": Path({}, fails_after_sampling=True),
    "planned ahead, steps that fail": Path(AHEAD, fails_after_sampling=True),
}


def prompts(count: int) -> list[list[int]]:
    """Different lengths, with tokens that come up again, a beginning in common."""
    chance = random.Random(3)
    start = [chance.randrange(8, 250) for _ in range(24)]
    lengths = [5 + 3 * (i % 24) for i in range(count)]
    return [start + [chance.choice([9, 30, chance.randrange(8, 250)]) for _ in range(length)] for length in lengths]


def check_ends(params: SamplingParams, token_ids: tuple[int, ...], reason: FinishReason, eos: tuple[int, ...]) -> None:
    """The answer ends at the first token that must end it, and says why."""
    stops = {*params.stop_token_ids, *(() if params.ignore_eos else eos)}
    detection = params.repetition_detection
    for n, token in enumerate(token_ids, 1):
        repeats = detection is not None and oracle.repeats_at_end(
            token_ids[:n], detection.min_pattern_size, detection.max_pattern_size, detection.min_count
        )
        if token in stops:
            want = FinishReason.STOP
        elif n == params.max_tokens:
            want = FinishReason.LENGTH
        elif repeats and n >= params.min_tokens:
            want = FinishReason.REPETITION
        else:
            continue
        assert (n, want) == (len(token_ids), reason)
        return
    pytest.fail("nothing ended the answer")


def generate(model: str, path: Path, each: list[SamplingParams]) -> tuple[Answers, Witness]:
    llm, witness = witnessed(model, {**COMMON, **path.fields}, fails_after_sampling=path.fails_after_sampling)
    with llm:
        for _ in range(path.rounds):
            before = llm.load().counters
            outputs = llm.generate(prompts(len(each)), each)
        after = llm.load().counters
        eos = llm.info.eos_token_ids
    for name in path.counters:
        assert after[name] > before[name], f"no {name} came about"
    for params, output in zip(each, outputs, strict=True):
        for answer in output.outputs:
            assert answer.error is None
            check_ends(params, answer.token_ids, answer.finish_reason, eos)
    assert witness.faults == []
    answers = [(output.prompt_logprobs, [(a.token_ids, a.logprobs) for a in output.outputs]) for output in outputs]
    return answers, witness


@pytest.fixture(scope="module")
def alone(tiny_model: str) -> Answers:
    """The answers on the plainest path."""
    return generate(tiny_model, PATHS["one at a time"], [params_of(fields) for fields in ALONE.values()])[0]


@pytest.mark.parametrize("name", PATHS)
def test_every_parameter_on_every_path(tiny_model: str, alone: Answers, name: str) -> None:
    answers, witness = generate(tiny_model, PATHS[name], [params_of(fields) for fields in ALONE.values()])
    assert answers == alone
    rows = witness.rows
    assert (
        rows["first"] >= len(ALONE) + 2
        and rows["later"] + rows["resumed"] > 300
        and rows["forced"] > 5
        and rows["named"] > 10
        and rows["masked"] > 30
    )
    assert "preemptions" not in PATHS[name].counters or rows["resumed"] >= 10
    assert not PATHS[name].fails_after_sampling or rows["undone"] > 100
    assert rows["unsure"] < 8


def test_each_setting_makes_a_difference(tiny_model: str) -> None:
    """Or else the test above would not see it ignored."""
    names = [name for name in FIELD if FIELD[name] not in SEEN_OTHERWISE]
    without = [{key: value for key, value in ALONE[name].items() if key != FIELD[name]} for name in names]
    plain = PATHS["all at once"]
    answers, _ = generate(tiny_model, plain, [params_of(ALONE[name]) for name in names])
    others, _ = generate(tiny_model, plain, [params_of(fields) for fields in without])
    assert [name for name, a, b in zip(names, answers, others, strict=True) if a == b] == []


@pytest.mark.parametrize("name", ["after preemption", "planned ahead, chunks, preemption"])
@settings(max_examples=8)
@given(each=st.lists(mixtures, min_size=10, max_size=16))
def test_any_parameters_together(tiny_model: str, name: str, each: list[dict[str, Any]]) -> None:
    path = Path(PATHS[name].fields)
    generate(tiny_model, path, [SamplingParams(max_tokens=24, **fields) for fields in each])
