"""Converted weights while they are packed: a few stand in memory at one time, never the model twice."""

import gc
import sys
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import UnsupportedModelError
from octavo.execution.loader import open_checkpoint
from octavo.execution.loader.tiny import TinyModel
from octavo.execution.native import NativeExecutor, pack_weights
from octavo.execution.native.footprint import StepLimits, footprint
from octavo.execution.native.shared_weights import SharedWeights
from octavo.execution.quant import TensorType
from octavo.execution.quant.recipe import Recipe
from octavo.execution.requantize import requantized
from octavo.execution.weights import LoadedWeight, load_model
from octavo.model.program import Program
from tests.execution.driver import layout_for
from tests.execution.native.test_given_back import SIZES, mapped_kib
from tests.execution.quant_methods.checkpoints import FILE, write
from tests.execution.quant_methods.kinds import KINDS
from tests.execution.test_weights import edited, open_tiny

MODEL = {"hidden": 256, "intermediate": 512, "heads": 4, "kv_heads": 4, "layers": 8}
Loaded = tuple[Program, Mapping[str, LoadedWeight]]


def packed_codes(folder: Path) -> Loaded:
    write(folder, KINDS["W8A8"][0], TinyModel(**MODEL))  # type: ignore[arg-type]
    return load_model(open_checkpoint([folder / FILE]))


def quantised_at_load(folder: Path) -> Loaded:
    program, weights = load_model(open_tiny(folder, **MODEL))
    return program, requantized(program, weights, Recipe(TensorType.Q8_0), threads=1)


def turned(folder: Path) -> Loaded:
    return load_model(open_tiny(folder, "safetensors", architecture="gpt2", **MODEL))


def without_a_kernel(folder: Path) -> Loaded:
    """Any bytes are numbers in IQ3_S, or NaN; its blocks are as long as those of Q3_K, which has a writer."""
    base = open_tiny(folder, tensor_type=TensorType.Q3_K, embedding_type=TensorType.F32, **MODEL)
    other = {name: replace(t, type=TensorType.IQ3_S) for name, t in base.tensors.items() if t.type is TensorType.Q3_K}
    return load_model(edited(base, extra=other))


def start(loaded: Loaded, shared: SharedWeights | None = None) -> NativeExecutor:
    program, weights = loaded
    return NativeExecutor(program, weights, layout_for(program, tokens=16), shared=shared, **SIZES)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a model of megabytes shows what one of gigabytes takes."""
    monkeypatch.setattr(pack_weights, "BATCH_BYTES", 1 << 16)
    for module in ("quant_methods.encode", "quant.convert"):
        monkeypatch.setattr(import_module(f"octavo.execution.{module}"), "_WEIGHTS_AT_ONCE", 1 << 14)


@pytest.mark.parametrize("load", [packed_codes, quantised_at_load, turned, without_a_kernel])
def test_no_more_than_a_few_are_held(load: Callable[[Path], Loaded], tmp_path: Path) -> None:
    """Python's count of memory does not have the packed weights: the native core allocates them."""
    with np.errstate(invalid="ignore"):
        loaded = load(tmp_path)
        foretold = footprint(*loaded, StepLimits(threads=1, max_tokens=8, max_rows=1, max_positions=16)).loading
        converted = [weight.raw.nbytes for weight in loaded[1].values() if len(weight.shape) == 2 and not weight.mapped]
        tracemalloc.start()
        try:
            start(loaded).close()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert len(converted) > 30
    assert sum(converted) > 3_000_000
    assert max(converted) <= foretold < peak < sum(converted) / 4


def test_nothing_is_converted_before_it_is_packed(tmp_path: Path) -> None:
    packed_codes(tmp_path)
    tracemalloc.start()
    try:
        _, weights = load_model(open_checkpoint([tmp_path / FILE]))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < sum(weight.type.num_bytes(weight.shape) for weight in weights.values()) / 4


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("load", [packed_codes, quantised_at_load, turned])
def test_pages_that_were_converted_from_are_given_back(load: Callable[[Path], Loaded], tmp_path: Path) -> None:
    loaded = load(tmp_path)
    path = max(tmp_path.rglob("*.*"), key=lambda path: path.stat().st_size)
    start(loaded).close()
    assert 0 < mapped_kib(path) * 1024 < 0.2 * path.stat().st_size
    gc.collect()  # of other tests
    gc.disable()  # as an engine does while it starts
    try:
        del loaded
        assert mapped_kib(path) == 0
    finally:
        gc.enable()


def test_a_start_that_maps_packed_weights_converts_samples_of_them(tmp_path: Path) -> None:
    program, weights = packed_codes(tmp_path)
    shared = SharedWeights(tmp_path / "packed", "a model", "model.safetensors")
    asked: list[int] = []

    def counted(weight: LoadedWeight) -> LoadedWeight:
        def rows(which: slice) -> np.ndarray:
            found = weight.rows(which)
            asked.append(found.nbytes)
            return found

        return replace(weight, rows=rows)

    watched = {name: counted(weight) for name, weight in weights.items()}
    for least, most in ((1.0, 1.1), (0.0, 0.1)):
        asked.clear()
        assert start((program, watched), shared).shares_weights
        assert least <= sum(asked) / sum(w.type.num_bytes(w.shape) for w in weights.values()) < most


def test_what_cannot_be_converted_is_found_while_it_is_packed(tmp_path: Path) -> None:
    program, weights = load_model(open_tiny(tmp_path))
    name = "layers.1.mlp.down"
    broken = weights[name].float32()
    broken[5, 7] = np.inf
    damaged = {**weights, name: LoadedWeight.of(TensorType.F32, broken.shape, broken.reshape(-1).view(np.uint8))}
    converted = requantized(program, damaged, Recipe(TensorType.Q8_0), threads=1)
    shared = SharedWeights(tmp_path / "packed", "a model", "model.gguf")
    for place in (None, shared):
        with pytest.raises(UnsupportedModelError, match="holds inf, which Q8_0 does not"):
            start((program, converted), place)
    assert [path for path in shared.folder.iterdir() if path.suffix != ".lock"] == []
