"""A weight whose rows hold their inputs in another order gives the bits of one that holds them in the model's order and
gets reordered inputs."""

import numpy as np
import pytest

from octavo.execution.quant import TensorType as Q
from octavo.execution.quant import quantize
from octavo.execution.reference.ops import DenseWeight, _matmul
from octavo.execution.weights import LoadedWeight
from octavo.model.program import Linear
from tests.execution.native.rig import ISAS, OpRig, Setting, bits

OUT, IN = 40, 96
RNG = np.random.default_rng(3)
VALUES = RNG.standard_normal((OUT, IN), dtype=np.float32)
ORDER = RNG.permutation(IN).astype(np.int32)
X = RNG.standard_normal((21, IN), dtype=np.float32)


def weight(order: np.ndarray | None, kind: Q = Q.Q4_0) -> LoadedWeight:
    """Holds VALUES, rounded in groups of the order ORDER."""
    return LoadedWeight.of(kind, VALUES.shape, quantize(kind, VALUES[:, ORDER]), input_order=order)


def product(x: np.ndarray, w: LoadedWeight, setting: Setting = Setting()) -> np.ndarray:  # noqa: B008 - frozen
    rig = OpRig({"x": x}, [Linear(x="x", out="y", weight="w")], {"w": w}, {"y": OUT})
    return rig.run("y", setting)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [1, 4, 21])
def test_bits_are_those_of_reordered_inputs(isa: str, rows: int) -> None:
    x = X[:rows]
    here = product(x, weight(ORDER), Setting(isa=isa))
    there = product(np.ascontiguousarray(x[:, ORDER]), weight(None), Setting(isa=isa, threads=1))
    assert (bits(here) == bits(there)).all()


def test_weights_of_one_input_may_have_orders_of_their_own() -> None:
    other = RNG.permutation(IN).astype(np.int32)
    weights = {
        "a": weight(ORDER),
        "b": LoadedWeight.of(Q.Q4_0, VALUES.shape, weight(None).raw, input_order=other),
        "c": weight(None),
    }
    ops = [Linear(x="x", out=f"y{name}", weight=name) for name in weights]
    rig = OpRig({"x": X}, ops, weights, {f"y{name}": OUT for name in weights})
    for name, w in weights.items():
        order = np.arange(IN) if w.input_order is None else w.input_order
        expected = product(np.ascontiguousarray(X[:, order]), weight(None))
        assert (bits(rig.run(f"y{name}")) == bits(expected)).all(), name


def test_values_stand_in_the_order_of_the_model() -> None:
    rounded = weight(None).float32()
    assert (weight(ORDER).float32()[:, ORDER] == rounded).all()


def test_the_reference_rounds_in_the_same_groups() -> None:
    w = weight(ORDER)
    expected = product(X, w)
    dense = DenseWeight(w.float32(), rounds_inputs=True, input_order=ORDER)
    np.testing.assert_allclose(_matmul(X, dense), expected, rtol=2e-5, atol=2e-5)
    elsewhere = DenseWeight(w.float32(), rounds_inputs=True)
    assert np.abs(_matmul(X, elsewhere) - expected).max() > 1e-3
