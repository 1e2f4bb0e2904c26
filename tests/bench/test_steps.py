"""Steps without an engine: what a case means, the arrays it becomes, and how times are added up."""

import numpy as np
import pytest

from octavo.bench.single_ops import Sizes, attention_program, norm_and_quantise_program
from octavo.bench.steps import (
    BLOCK_SIZE,
    StepCase,
    add_up,
    blocks_for,
    build_executor,
    layout_of,
    make_batch,
    time_step,
)
from octavo.errors import ConfigError
from octavo.model.program import CacheLayer


@pytest.mark.parametrize(
    ("text", "case"),
    [
        ("decode:16:200", StepCase(16, 1, 200)),
        ("verify:4:8:200", StepCase(4, 9, 200, verifies=True)),
        ("prefill:128", StepCase(1, 128, 128)),
        ("prefill:128:512", StepCase(1, 128, 512)),
    ],
)
def test_cases_are_read_as_they_are_written(text: str, case: StepCase) -> None:
    assert StepCase.parse(text) == case
    assert str(case) == text


@pytest.mark.parametrize(
    "text", ["decode:16", "prefill", "decode:0:5", "prefill:8:4", "x:1", "decode:a:b", "verify:1:5:5"]
)
def test_other_cases_are_refused_with_what_is_possible(text: str) -> None:
    with pytest.raises(ConfigError, match="decode:BATCH:CONTEXT"):
        StepCase.parse(text)


def test_a_batch_has_its_own_blocks_for_every_sequence_and_group() -> None:
    layers = (CacheLayer(1, 8, window=16), CacheLayer(1, 8))
    case = StepCase(sequences=3, tokens=5, context=37)
    layout = layout_of(layers, blocks_for(layers, [case]))
    batch = make_batch(layout, case, vocab_size=50)
    assert batch.block_tables.shape == (2, 3, 3)
    assert sorted(batch.block_tables.ravel().tolist()) == list(range(1, 19))
    assert batch.positions.tolist() == list(range(32, 37)) * 3
    assert batch.seq_starts.tolist() == [0, 5, 10, 15]
    assert batch.logit_rows.tolist() == [4, 9, 14]
    assert (batch.slot_mapping // BLOCK_SIZE == np.repeat(batch.block_tables[:, :, 2], 5, axis=1)).all()
    assert (batch.slot_mapping % BLOCK_SIZE == batch.positions % BLOCK_SIZE).all()
    assert batch.token_ids.max() < 50


def test_every_token_of_a_step_that_verifies_has_a_row_of_logits() -> None:
    layers, case = (CacheLayer(1, 8),), StepCase(2, 3, 20, verifies=True)
    batch = make_batch(layout_of(layers, blocks_for(layers, [case])), case, vocab_size=50)
    assert batch.logit_rows.tolist() == list(range(6))
    assert (case.logit_rows, case.shape.rows) == (6, 6)


def test_times_of_a_stage_are_added_up_over_its_places() -> None:
    runs = [[("a", 1.0 + i), ("b", 10.0), ("a", 2.0)] for i in range(11)]
    assert add_up(runs) == {"a": pytest.approx(1.0 + 1.0 + 2.0), "b": 10.0}
    assert add_up([]) == {}


def test_a_step_is_timed_as_a_whole_and_by_stage() -> None:
    made = attention_program(4, CacheLayer(kv_heads=2, head_dim=8), layers=2)
    case = StepCase(2, 1, 20)
    executor = build_executor(made.program, made.weights, [case], threads=1, isa="portable")
    times = time_step(executor, [make_batch(executor.layout, case, 64)], seconds=0.0, least=4)
    executor.close()
    assert times.repeats == 4
    assert {"attention", "CacheWrite"} <= set(times.stages)
    assert times.stages_s > 0
    assert times.best_s <= times.wall_s


def test_a_norm_and_its_int8_form_are_one_stage() -> None:
    made = norm_and_quantise_program(Sizes(32, 2, 1, 16, 64, 10), copies=3)
    case = StepCase(2, 1, 1)
    executor = build_executor(made.program, made.weights, [case], threads=1, isa="portable")
    names = [name for name, _ in executor.profile(make_batch(executor.layout, case, 64))]
    executor.close()
    assert names.count("RmsNorm+Quantize") == 2
    assert names.count("linear linear") == 3
    assert "Embed+RmsNorm+Quantize" in names
