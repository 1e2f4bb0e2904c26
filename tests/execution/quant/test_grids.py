import numpy as np
import pytest

from octavo.execution.quant.grids import grid


@pytest.mark.parametrize(
    ("name", "codes"),
    [("IQ2_XXS", 256), ("IQ2_XS", 512), ("IQ2_S", 1024), ("IQ3_XXS", 256), ("IQ3_S", 512), ("IQ1", 2048)],
)
def test_grids_are_those_of_the_public_package(name: str, codes: int) -> None:
    quants = pytest.importorskip("gguf").quants
    theirs = getattr(quants, {"IQ1": "IQ1_S"}.get(name, name))
    theirs.init_grid()
    ours = grid(name)
    assert ours.shape == (codes, 4 if name.startswith("IQ3") else 8)
    np.testing.assert_array_equal(ours, theirs.grid.reshape(ours.shape))
