"""Packing gives the pages of the model's file back, also where rows stand there in another order."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from octavo.execution.native import NativeExecutor
from octavo.execution.quant import TensorType
from octavo.execution.weights import LoadedWeight, load_model
from tests.execution.driver import layout_for
from tests.execution.test_weights import open_tiny

SIZES = {"threads": 1, "isa": "auto", "max_tokens": 8, "max_rows": 1, "max_seqs": 1, "max_positions": 16}


def mapped_kib(path: Path) -> int:
    """Of a file, in the memory of this process."""
    maps = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    return sum(int(re.findall(r"^Rss:\s+(\d+)", one, re.MULTILINE)[0]) for one in maps if str(path) in one)


def viewed(weight: LoadedWeight) -> LoadedWeight:
    """The same bytes, of which nothing is given back when another weight is read."""
    return replace(weight, rows=weight.raw.reshape(weight.num_rows, -1).__getitem__)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_of_the_matrices_stays(tmp_path: Path) -> None:
    checkpoint = open_tiny(tmp_path, hidden=512, heads=8, kv_heads=8, intermediate=512, tensor_type=TensorType.F32)
    program, weights = load_model(checkpoint)
    weights = {name: viewed(weight) for name, weight in weights.items()}
    ordered = [weight.raw.nbytes for weight in weights.values() if weight.row_order is not None]
    (path,) = tmp_path.iterdir()
    sum(int(weight.raw[::4096].sum()) for weight in weights.values())  # all of it is in memory once
    before = mapped_kib(path)
    NativeExecutor(program, weights, layout_for(program, tokens=16), **SIZES).close()  # type: ignore[arg-type]
    assert sum(ordered) > 4_000_000
    assert before * 1024 > sum(ordered)
    assert mapped_kib(path) < 0.1 * before
