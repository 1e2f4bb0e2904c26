"""What is read is what the files define: to the last bit, whatever the packing."""

from pathlib import Path

import numpy as np
import pytest

from octavo.execution.loader import open_checkpoint
from octavo.execution.quant import native_type
from octavo.execution.weights import LoadedWeight, load_model
from tests.execution.quant_methods.checkpoints import FILE, write
from tests.execution.quant_methods.kinds import KINDS


def load(folder: Path) -> dict[str, LoadedWeight]:
    return load_model(open_checkpoint([folder / FILE]))[1]


LINEARS = {"attn.q": "self_attn.q_proj", "attn.out": "self_attn.o_proj", "mlp.down": "mlp.down_proj"}


@pytest.mark.parametrize("name", KINDS)
def test_values_are_those_of_the_file(name: str, tmp_path: Path) -> None:
    kind, number_format = KINDS[name]
    values = write(tmp_path, kind)
    loaded = load(tmp_path)
    for ours, theirs in LINEARS.items():
        for layer in range(2):
            weight = loaded[f"layers.{layer}.{ours}"]
            assert weight.type is native_type(number_format), theirs
            np.testing.assert_array_equal(weight.float32(), values[f"model.layers.{layer}.{theirs}.weight"])
    np.testing.assert_array_equal(loaded["embed"].float32(), values["model.embed_tokens.weight"])
