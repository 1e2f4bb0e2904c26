"""The reference executor in float32 gives the values that the models define."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from octavo.execution.loader import open_checkpoint
from octavo.execution.reference import ReferenceExecutor
from octavo.execution.weights import load_model
from octavo.kv.spec import KVDtype
from tests.effort import LONG
from tests.execution.driver import Driver, layout_for
from tests.parity.golden import ALIASES, GreedyRow, greedy_rows, texts
from tests.parity.scoring import MAX_ROWS, open_model, teacher_force, token_logprobs
from tests.real_models import model_path

LOGPROB_TOLERANCE = 0.002
NLL_TOLERANCE = 0.0005
CLEAR_MARGIN = 0.005
"""A float32 argmax is certain where top-1 leads by more."""


@dataclass(frozen=True)
class Share:
    """The part of a model's golden rows that is scored, sized to the time it takes."""

    model: str
    long: tuple[str, ...]
    text: str
    text_ids: int
    every: int = 1
    """Every so many greedy rows one is scored; `test_native` scores the others, too."""

    def __str__(self) -> str:
        return self.model


SHARES = [
    Share("smollm2", ("log_700", *("story_1500",) * LONG), "python", 300, every=4),
    pytest.param(
        Share("gemma3", ("story_exact505", "log_exact513", *("code_1500",) * LONG), "english", 200, every=5),
        marks=pytest.mark.slow,
    ),
    pytest.param(Share("qwen2", ("code_700",), "python", 400, every=4), marks=[pytest.mark.slow, pytest.mark.long]),
]


def build(program, weights, layout) -> ReferenceExecutor:
    return ReferenceExecutor(program, weights, layout, max_rows=MAX_ROWS)


@pytest.fixture(scope="module", params=SHARES, ids=str)
def share(request: pytest.FixtureRequest) -> Share:
    return request.param


@pytest.fixture(scope="module")
def driver(share: Share) -> Iterator[Driver]:
    opened = open_model(share.model, build, tokens=1700, dtype=KVDtype.FP32)
    yield opened
    opened.executor.close()


def assert_same_steps(driver: Driver, rows: list[GreedyRow]) -> None:
    scored = teacher_force(driver, rows)
    assert scored.differences("f32").max() <= LOGPROB_TOLERANCE
    clear = [row.margin_f32 > CLEAR_MARGIN for row in scored.rows]
    assert scored.wrong_argmax([row.f32_argmax for row in scored.rows], clear).tolist() == []
    assert np.concatenate(clear).mean() > 0.95


def test_greedy_steps(driver: Driver, share: Share) -> None:
    rows = greedy_rows(share.model, "greedy")
    assert len(rows) >= 20
    assert_same_steps(driver, rows[:: share.every])


def test_steps_after_long_prompts(driver: Driver, share: Share) -> None:
    rows = [row for row in greedy_rows(share.model, "long") if row.name in share.long]
    assert len(rows) == len(share.long)
    assert_same_steps(driver, rows)


def test_perplexity(driver: Driver, share: Share) -> None:
    text = texts(share.model)[share.text].first(share.text_ids)
    logprobs = token_logprobs(driver, text)
    assert np.abs(logprobs - text.f32).max() <= LOGPROB_TOLERANCE
    assert abs(logprobs.mean() - text.f32.mean()) <= NLL_TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("window", [pytest.param(511, marks=pytest.mark.long), 513])
def test_a_window_that_is_off_by_one_would_show(window: int) -> None:
    """Mean differences of a right window stay below 0.003, see the tolerance of every single one above."""
    program, weights = load_model(open_checkpoint([model_path(ALIASES["gemma3"])]))
    layers = tuple(replace(c, window=window) if c.window else c for c in program.cache_layers)
    wrong = replace(program, cache_layers=layers)
    driver = Driver(build(wrong, weights, layout_for(wrong, tokens=600)))
    scored = teacher_force(driver, [row for row in greedy_rows("gemma3", "long") if row.name == "log_exact513"])
    assert scored.differences("f32").mean() > 0.003
