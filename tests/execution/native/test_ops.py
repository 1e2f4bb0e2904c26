"""Every row op against float64, on awkward widths, and with the same bits on every instruction set."""

import math

import numpy as np
import pytest

from octavo.execution.native.rope_table import rope_table
from octavo.execution.protocols import Float32
from octavo.execution.quant import TensorType, quantize
from octavo.execution.weights import LoadedWeight
from octavo.model.program import (
    Activate,
    Activation,
    Add,
    EmbedPositions,
    GatedActivation,
    LayerNorm,
    Linear,
    RmsNorm,
    Rope,
    RopeSpec,
    Scale,
)
from tests.execution.native.rig import ISAS, OpRig, Setting, bits

WIDTHS = [8, 24, 576, 36, 5, 1, 1000]
ROWS = 6


def random(width: int, rows: int = ROWS, seed: int = 0, size: float = 1.0) -> Float32:
    return (np.random.default_rng([seed, width]).standard_normal((rows, width)) * size).astype(np.float32)


def run_everywhere(rig: OpRig, output: str, positions: list[int] | None = None) -> Float32:
    """The output, after checking that all instruction sets and thread counts agree on its bits."""
    settings = [Setting(threads, isa) for threads in (1, 3) for isa in ISAS]
    outputs = [rig.run(output, setting, positions) for setting in settings]
    for other in outputs[1:]:
        np.testing.assert_array_equal(bits(other), bits(outputs[0]))
    return outputs[0]


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("width", WIDTHS)
def test_rms_norm(width: int, groups: int) -> None:
    x, weight = random(width * groups, size=3.0), random(width, rows=1)[0]
    ops = [RmsNorm(x="x", out="y", weight="w", eps=1e-5, groups=groups)]
    rig = OpRig({"x": x}, ops, {"w": weight}, extra_buffers={"y": width * groups})
    parts = x.astype(np.float64).reshape(ROWS, groups, width)
    expected = parts / np.sqrt((parts**2).mean(-1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(run_everywhere(rig, "y"), expected.reshape(x.shape), rtol=2e-6)
    in_place = OpRig({"x": x}, [RmsNorm(x="x", out="x", weight="w", eps=1e-5, groups=groups)], {"w": weight})
    np.testing.assert_array_equal(bits(in_place.run("x")), bits(rig.run("y")))


@pytest.mark.parametrize("bias", ["b", None])
@pytest.mark.parametrize("width", WIDTHS)
def test_layer_norm(width: int, bias: str | None) -> None:
    """Rows far from zero, whose mean must go before their squares are summed."""
    x, weight = random(width, size=3.0) + np.float32(100), random(width, rows=1)[0]
    weights = {"w": weight, "b": random(width, rows=1, seed=2)[0]}
    rig = OpRig({"x": x}, [LayerNorm(x="x", out="y", weight="w", eps=1e-5, bias=bias)], weights, {"y": width})
    centred = x.astype(np.float64) - x.astype(np.float64).mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight
    expected += 0 if bias is None else weights[bias]
    np.testing.assert_allclose(run_everywhere(rig, "y"), expected, rtol=2e-4, atol=2e-4)
    in_place = OpRig({"x": x}, [LayerNorm(x="x", out="x", weight="w", eps=1e-5, bias=bias)], weights)
    np.testing.assert_array_equal(bits(in_place.run("x")), bits(rig.run("y")))


def test_layer_norm_of_rows_around_zero() -> None:
    x, weight = random(576, size=3.0), random(576, rows=1)[0]
    rig = OpRig({"x": x}, [LayerNorm(x="x", out="x", weight="w", eps=1e-5)], {"w": weight})
    centred = x.astype(np.float64) - x.astype(np.float64).mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(run_everywhere(rig, "x"), expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("tensor_type", [TensorType.F32, TensorType.BF16, TensorType.Q8_0])
def test_learned_positions(tensor_type: TensorType) -> None:
    table = random(64, rows=4096)
    stored = LoadedWeight.of(tensor_type, table.shape, quantize(tensor_type, table))
    rig = OpRig({"x": random(8)}, [EmbedPositions(out="p", weight="t")], {"t": stored}, {"p": 64})
    positions = [0, 1, 17, 63, 2048, 4095]
    np.testing.assert_array_equal(run_everywhere(rig, "p", positions), stored.float32()[positions])


def test_a_table_of_positions_bounds_the_context() -> None:
    rig = OpRig({"x": random(8)}, [EmbedPositions(out="p", weight="t")], {"t": random(64, rows=4095)}, {"p": 64})
    with pytest.raises(ValueError, match=r"max_positions=4096.*holds 4095"):
        rig.run("p")


def normal_distribution(x: np.ndarray) -> np.ndarray:
    return np.array([math.erfc(-v / math.sqrt(2)) / 2 for v in x.ravel()]).reshape(x.shape)


def activated(x: np.ndarray, activation: Activation) -> np.ndarray:
    """In double precision."""
    return {
        Activation.SILU: lambda: x / (1 + np.exp(-x)),
        Activation.GELU_TANH: lambda: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        Activation.GELU: lambda: x * normal_distribution(x),
        Activation.RELU: lambda: np.maximum(x, 0),
    }[activation]()


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("width", WIDTHS)
def test_activation(width: int, activation: Activation) -> None:
    x = random(width, size=5.0)
    rig = OpRig({"x": x}, [Activate(x="x", out="y", activation=activation)], extra_buffers={"y": width})
    got = run_everywhere(rig, "y")
    np.testing.assert_allclose(got, activated(x.astype(np.float64), activation), rtol=2e-6, atol=1e-6)
    in_place = OpRig({"x": x}, [Activate(x="x", out="x", activation=activation)])
    np.testing.assert_array_equal(bits(in_place.run("x")), bits(got))


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("width", WIDTHS)
def test_gated_activation(width: int, activation: Activation) -> None:
    gate, up = random(width, size=5.0), random(width, seed=1)
    rig = OpRig({"g": gate, "u": up}, [GatedActivation(gate="g", up="u", out="g", activation=activation)])
    expected = activated(gate.astype(np.float64), activation) * up
    np.testing.assert_allclose(run_everywhere(rig, "g"), expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("width", WIDTHS)
def test_add(width: int) -> None:
    x, y = random(width), random(width, seed=1)
    rig = OpRig({"x": x, "y": y}, [Add(x="x", y="y", out="y")])
    np.testing.assert_array_equal(run_everywhere(rig, "y"), x + y)


@pytest.mark.parametrize("width", WIDTHS)
def test_scale(width: int) -> None:
    x, factor = random(width, size=3.0), 0.22
    rig = OpRig({"x": x}, [Scale(x="x", out="x", factor=factor)])
    np.testing.assert_array_equal(run_everywhere(rig, "x"), x * np.float32(factor))
    apart = OpRig({"x": x}, [Scale(x="x", out="y", factor=factor)], extra_buffers={"y": width})
    np.testing.assert_array_equal(bits(apart.run("y")), bits(rig.run("x")))


@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(64, 64), (80, 32), (16, 10), (256, 256), (8, 2)])
def test_rope(head_dim: int, rotary_dim: int) -> None:
    """Against complex numbers; dims past rotary_dim stay as they are."""
    heads, half = 3, rotary_dim // 2
    rope = RopeSpec(rotary_dim, tuple(10000.0 ** (-2 * i / rotary_dim) for i in range(half)), 1.25)
    x, positions = random(heads * head_dim), [0, 1, 17, 63, 2048, 4095]
    rig = OpRig({"x": x}, [Rope(x="x", heads=heads, head_dim=head_dim, rope=0)], ropes=(rope,))
    got = run_everywhere(rig, "x", positions).reshape(ROWS, heads, head_dim)
    parts = x.astype(np.float64).reshape(ROWS, heads, head_dim)
    turns = np.exp(1j * np.outer(positions, rope.inv_freq)) * 1.25
    turned = (parts[..., :half] + 1j * parts[..., half:rotary_dim]) * turns[:, None]
    np.testing.assert_allclose(got[..., :half], turned.real, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[..., half:rotary_dim], turned.imag, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(bits(got[..., rotary_dim:]), bits(parts[..., rotary_dim:].astype(np.float32)))


def test_the_rotation_table_is_exact_far_out() -> None:
    table = rope_table(RopeSpec(4, (0.3, 1e-4), 2.0), 100_001)
    angles = np.array([0.3, 1e-4]) * 100_000
    np.testing.assert_array_equal(table[-1], (2 * np.r_[np.cos(angles), np.sin(angles)]).astype(np.float32))


@pytest.mark.parametrize("tensor_type", [TensorType.F32, TensorType.Q8_0])
def test_linear_with_bias_and_sum(tensor_type: TensorType) -> None:
    """The linear kernels have tests of their own; here the stage around them: bias, sum, rows, tile columns."""
    x, y, bias = random(64), random(40, seed=1), random(40, rows=1, seed=2)[0]
    w = random(64, rows=40, seed=3)
    loaded = LoadedWeight.of(tensor_type, (40, 64), quantize(tensor_type, w))
    ops = [Linear(x="x", out="h", weight="w", bias="b"), Add(x="y", y="h", out="y")]
    rig = OpRig({"x": x, "y": y}, ops, {"w": loaded, "b": bias}, extra_buffers={"h": 40})
    expected = x.astype(np.float64) @ loaded.float32().T.astype(np.float64) + bias + y
    tolerance = 1e-5 if tensor_type is TensorType.F32 else 0.2
    got = run_everywhere(rig, "y")
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)
    apart = OpRig(rig.inputs, [*ops[:1], Add(x="y", y="h", out="z")], rig.weights, extra_buffers={"h": 40, "z": 40})
    np.testing.assert_array_equal(bits(apart.run("z")), bits(got))


def test_rows_of_a_nan_stay_alone() -> None:
    x = random(64)
    x[2, 5] = np.nan
    loaded = LoadedWeight.of(TensorType.Q8_0, (40, 64), quantize(TensorType.Q8_0, random(64, rows=40, seed=3)))
    ops = [RmsNorm(x="x", out="x", weight="n", eps=1e-5), Linear(x="x", out="h", weight="w")]
    rig = OpRig({"x": x}, ops, {"w": loaded, "n": np.ones(64, np.float32)}, extra_buffers={"h": 40})
    got = rig.run("h")
    assert np.isnan(got[2]).all()
    assert np.isfinite(np.delete(got, 2, axis=0)).all()
