"""The native executor, whose activations are rounded to 8 bits, lies as near to the references as llama.cpp does."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from octavo.execution.native.executor import NativeExecutor
from octavo.kv.spec import KVDtype
from tests.execution.driver import Driver
from tests.parity.golden import NOISY, GreedyRow, greedy_rows, texts
from tests.parity.scoring import CHUNK, MAX_ROWS, Scored, open_model, teacher_force, token_logprobs

LONGEST = 1700
NLL_TOLERANCE = 0.02
WRONG_PER_UNAMBIGUOUS_STEP = 0.002


@dataclass(frozen=True)
class Noise:
    """Bounds on |logprob difference| over all steps of a model's rows, and how much of them is scored."""

    model: str
    every: int
    """Every so many greedy rows one is scored."""
    longest_prompt: int
    text_ids: int
    f32_mean: float
    f32_p99: float
    llama_mean: float
    llama_p99: float

    def __str__(self) -> str:
        return self.model


NOISES = [
    Noise("smollm2", 2, 1600, 800, 0.16, 0.69, 0.22, 0.98),
    pytest.param(Noise("gemma3", 2, 1600, 600, 0.20, 0.89, 0.28, 1.26), marks=pytest.mark.slow),
    pytest.param(Noise("qwen2", 4, 1000, 300, 0.09, 0.38, 0.13, 0.54), marks=pytest.mark.slow),
]


def build(program, weights, layout) -> NativeExecutor:
    threads = min(2, len(os.sched_getaffinity(0)))
    return NativeExecutor(
        program,
        weights,
        layout,
        threads=threads,
        isa="auto",
        max_tokens=CHUNK,
        max_rows=MAX_ROWS,
        max_seqs=1,
        max_positions=LONGEST,
    )


@pytest.fixture(scope="module", params=NOISES, ids=str)
def noise(request: pytest.FixtureRequest) -> Noise:
    return request.param


@pytest.fixture(scope="module")
def driver(noise: Noise) -> Iterator[Driver]:
    opened = open_model(noise.model, build, tokens=LONGEST, dtype=KVDtype.FP16)
    yield opened
    opened.executor.close()


def assert_as_near_as_llama_cpp(scored: Scored, noise: Noise) -> None:
    for reference, mean, p99 in (("f32", noise.f32_mean, noise.f32_p99), ("llama", noise.llama_mean, noise.llama_p99)):
        differences = scored.differences(reference)
        assert differences.mean() <= mean
        assert np.quantile(differences, 0.99) <= p99


def assert_agrees_where_the_references_do(scored: Scored) -> None:
    clear = [~row.ambiguous for row in scored.rows]
    wrong = scored.wrong_argmax([row.ids for row in scored.rows], clear)
    assert len(wrong) <= WRONG_PER_UNAMBIGUOUS_STEP * np.concatenate(clear).sum(), wrong


def quiet(rows: list[GreedyRow]) -> list[GreedyRow]:
    return [row for row in rows if row.name != NOISY]


def test_greedy_steps(driver: Driver, noise: Noise) -> None:
    scored = teacher_force(driver, quiet(greedy_rows(noise.model, "greedy"))[:: noise.every])
    assert len(scored.argmax) == 20 // noise.every * 64
    assert_as_near_as_llama_cpp(scored, noise)
    assert_agrees_where_the_references_do(scored)


def test_steps_after_long_prompts(driver: Driver, noise: Noise) -> None:
    rows = [row for row in greedy_rows(noise.model, "long") if len(row.prompt_ids) <= noise.longest_prompt]
    assert len(rows) >= 2
    scored = teacher_force(driver, rows)
    assert_as_near_as_llama_cpp(scored, noise)
    assert_agrees_where_the_references_do(scored)


def test_perplexity(driver: Driver, noise: Noise) -> None:
    text = texts(noise.model)["python"].first(noise.text_ids)
    assert abs(token_logprobs(driver, text).mean() - text.f32.mean()) <= NLL_TOLERANCE
