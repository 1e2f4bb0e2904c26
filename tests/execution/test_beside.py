"""Two programs over one KV memory: each computes what it would compute alone, and a block holds the state of both."""

from collections.abc import Callable

import numpy as np
import pytest

from octavo.execution.native import NativeExecutor
from octavo.execution.protocols import ProgramExecutor
from octavo.execution.reference import ReferenceExecutor
from octavo.execution.weights import LoadedWeight, load_model
from octavo.kv.spec import AttentionSpec, KVDtype, KVLayout, lay_out
from octavo.model.program import Program
from octavo.scheduling.plan import BlockCopy
from tests.execution.driver import Driver, Live, layout_for
from tests.execution.native.rig import bits
from tests.execution.test_weights import open_tiny

TOKENS = 80
Model = tuple[Program, dict[str, LoadedWeight]]
Build = Callable[[Model, KVLayout, ProgramExecutor | None], ProgramExecutor]


def native(model: Model, layout: KVLayout, beside: ProgramExecutor | None) -> ProgramExecutor:
    threads = 2 if beside is None else None
    return NativeExecutor(
        *model, layout, threads=threads, isa="auto", max_tokens=TOKENS, max_rows=4, max_seqs=4, max_positions=TOKENS,
        beside=beside,
    )  # type: ignore[arg-type]  # fmt: skip


def reference(model: Model, layout: KVLayout, beside: ProgramExecutor | None) -> ProgramExecutor:
    return ReferenceExecutor(*model, layout, beside=beside)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Model]:
    """One with windows and heads of 256, and one of full attention and other shapes."""
    sizes: dict[str, object] = {"window": 24, "window_period": 2, "layers": 4, "head_dim": 256, "kv_heads": 1}
    first = open_tiny(tmp_path_factory.mktemp("gemma3"), architecture="gemma3", **sizes)
    second = open_tiny(tmp_path_factory.mktemp("llama"), layers=3, heads=4, kv_heads=2, head_dim=64, seed=5)
    return load_model(first), load_model(second)


def specs_of(program: Program) -> tuple[AttentionSpec, ...]:
    return tuple(
        AttentionSpec(num_kv_heads=layer.kv_heads, head_dim=layer.head_dim, window=layer.window)
        for layer in program.cache_layers
    )


def common_layout(models: tuple[Model, Model], dtype: KVDtype = KVDtype.FP16, block_size: int = 16) -> KVLayout:
    first, second = (specs_of(program) for program, _ in models)
    return lay_out(first, beside=second, num_blocks=80, block_size=block_size, dtype=dtype)


def steps(driver: Driver, executor: ProgramExecutor, live: Live, counts: tuple[int, ...]) -> list[np.ndarray]:
    logits = []
    for count in counts:
        logits.append(bits(executor.run(driver.batch([(live, count)])).copy()))
        live.computed += count
    return logits


def prompt(seed: int = 3) -> list[int]:
    return np.random.default_rng(seed).integers(8, 500, TOKENS).tolist()


@pytest.mark.parametrize("build", [native, reference])
@pytest.mark.parametrize(("dtype", "block_size"), [(KVDtype.FP16, 16), (KVDtype.INT8, 16), (KVDtype.FP16, 4)])
def test_each_computes_what_it_computes_alone(
    models: tuple[Model, Model], build: Build, dtype: KVDtype, block_size: int
) -> None:
    layout = common_layout(models, dtype, block_size)
    first = build(models[0], layout, None)
    second = build(models[1], layout, first)
    driver = Driver(first)
    live = driver.start(prompt())
    together: list[list[np.ndarray]] = [[], []]
    for count in (50, 1, 1, 28):
        batch = driver.batch([(live, count)])
        for seen, executor in zip(together, (first, second), strict=True):
            seen.append(bits(executor.run(batch).copy()))
        live.computed += count
    second.close()
    first.close()
    for model, seen in zip(models, together, strict=True):
        alone = build(model, layout_for(model[0], tokens=TOKENS, dtype=dtype, block_size=block_size), None)
        own = Driver(alone)
        expected = steps(own, alone, own.start(prompt()), (50, 1, 1, 28))
        for got, wanted in zip(seen, expected, strict=True):
            np.testing.assert_array_equal(got, wanted)
        alone.close()


@pytest.mark.parametrize("build", [native, reference])
def test_blocks_are_copied_and_moved_with_the_state_of_both(models: tuple[Model, Model], build: Build) -> None:
    layout = common_layout(models)
    first = build(models[0], layout, None)
    second = build(models[1], layout, first)
    driver = Driver(first)
    live, other = driver.start(prompt()), driver.start(prompt())
    first.run(driver.batch([(live, 40)]))
    second.run(driver.batch([(live, 40)]))
    driver.batch([(other, 40)])  # hands out blocks
    live.computed = other.computed = 40
    copies = []
    for group, (sources, targets) in enumerate(zip(live.blocks, other.blocks, strict=True)):
        moved = np.empty(first.block_bytes(group), np.uint8)
        assert len(moved) == layout.groups[group].bytes_per_block(16, KVDtype.FP16)
        for source, target in zip(sources[:2], targets[:2], strict=True):
            first.read_block(group, source, moved)
            second.write_block(group, target, moved)
        copies.append(BlockCopy(group, sources[2], targets[2], 8))
    batch = driver.batch([(other, 1)], copies)
    expected = driver.batch([(live, 1)])
    for executor in (first, second):
        np.testing.assert_array_equal(bits(executor.run(batch)).copy(), bits(executor.run(expected)).copy())


def test_what_does_not_fit_together_is_named(models: tuple[Model, Model]) -> None:
    layout = common_layout(models)
    with pytest.raises(ValueError, match="has 3 cache layers from 0 on that the layout's 7 layers do not hold"):
        native(models[1], layout, None)
    first = native(models[0], layout, None)
    with pytest.raises(ValueError, match="threads of its own or another's"):
        NativeExecutor(
            *models[1], layout, threads=2, isa="auto", max_tokens=8, max_rows=1, max_seqs=1, max_positions=8,
            beside=first,
        )  # type: ignore[arg-type]  # fmt: skip
    first.close()
    with pytest.raises(ValueError, match="closed"):
        native(models[1], layout, first)
