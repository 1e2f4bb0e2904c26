"""The size of a step: what the user says counts, the rest follows from model and machine."""

from dataclasses import replace
from math import prod

import pytest

from octavo.config import SchedulerConfig
from octavo.engine.step_size import GRANULE, MOST_TOKENS, with_step_size
from octavo.model.program import Buffer, Linear, Program, Weight


def program_of(width: int, layers: int) -> Program:
    return Program(
        name="stack",
        ops=tuple(Linear(x="x", out="x", weight=f"w{i}") for i in range(layers)),
        buffers={"x": Buffer("x", "tokens", width)},
        weights={f"w{i}": Weight(f"w{i}", (width, width)) for i in range(layers)},
        cache_layers=(),
        ropes=(),
        outputs={"logits": "x"},
        vocab_size=width,
        max_positions=64,
    )


SMALL, LARGE = program_of(1024, 100), program_of(4096, 420)  # 105 million and 7 billion parameters


def budget(program: Program, threads: int, isa: str) -> int:
    return with_step_size(SchedulerConfig(), [program], threads, isa).max_num_batched_tokens


def test_what_is_given_stays() -> None:
    config = SchedulerConfig(max_num_seqs=3, max_num_batched_tokens=17)
    assert with_step_size(config, [SMALL], 8, "amx") == config
    assert with_step_size(replace(config, max_num_seqs=0), [SMALL], 2, "amx").max_num_batched_tokens == 17


@pytest.mark.parametrize("isa", ["portable", "avx2", "avx512", "amx"])
def test_the_budget_grows_with_the_machine_and_shrinks_with_the_model(isa: str) -> None:
    assert budget(SMALL, 1, isa) <= budget(SMALL, 4, isa) <= budget(SMALL, 64, isa) <= MOST_TOKENS
    assert GRANULE <= budget(LARGE, 4, isa) <= budget(SMALL, 4, isa)
    assert budget(LARGE, 4, isa) % GRANULE == 0


def test_a_budget_is_half_a_second_of_work() -> None:
    per_token = 2 * sum(prod(weight.shape) for weight in SMALL.weights.values())
    seconds = budget(SMALL, 2, "avx2") * per_token / (2 * 180e9)
    assert 0.3 < seconds <= 0.5


@pytest.mark.parametrize(("threads", "seqs"), [(1, 64), (2, 64), (4, 128), (64, 256)])
def test_sequences_follow_the_threads(threads: int, seqs: int) -> None:
    assert with_step_size(SchedulerConfig(), [SMALL], threads, "avx2").max_num_seqs == seqs


def test_both_models_count_where_a_second_one_runs_all_tokens() -> None:
    both = with_step_size(SchedulerConfig(), [LARGE, LARGE], 8, "avx512").max_num_batched_tokens
    assert both == pytest.approx(budget(LARGE, 8, "avx512") / 2, abs=GRANULE)
