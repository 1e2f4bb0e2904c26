"""Each op of the reference executor against a slow and obvious computation."""

import math

import numpy as np
import pytest

from octavo.execution.protocols import Float32, StepBatch
from octavo.execution.reference.ops import OPS, DenseWeight, Machine
from octavo.execution.reference.paged_kv import PagedKV
from octavo.kv.spec import AttentionSpec, KVDtype, lay_out
from octavo.model.program import (
    Activate,
    Activation,
    Add,
    Attention,
    CacheWrite,
    Embed,
    EmbedPositions,
    GatedActivation,
    LayerNorm,
    Linear,
    Logits,
    Op,
    RmsNorm,
    Rope,
    RopeSpec,
    Scale,
    SelectRows,
)

TOKENS, WIDTH = 5, 12
HEADS, KV_HEADS, HEAD_DIM = 6, 2, 4


def machine(rng: np.random.Generator, window: int | None = None, **buffers: Float32) -> Machine:
    """Two sequences, 3 and 2 tokens of contexts 3 and 9, over blocks of 4 tokens."""
    layout = lay_out(
        (AttentionSpec(num_kv_heads=KV_HEADS, head_dim=HEAD_DIM, window=window),),
        num_blocks=8,
        block_size=4,
        dtype=KVDtype.FP32,
    )
    batch = StepBatch(
        token_ids=np.array([3, 1, 4, 1, 5], np.int32),
        positions=np.array([0, 1, 2, 7, 8], np.int32),
        seq_starts=np.array([0, 3, 5], np.int32),
        context_lens=np.array([3, 9], np.int32),
        block_tables=np.array([[[5, 0, 0], [2, 7, 1]]], np.int32),
        slot_mapping=np.array([[20, 21, 22, 31, 4]], np.int32),
        logit_rows=np.array([2, 4], np.int32),
    )
    weights = {
        "table": DenseWeight(rng.standard_normal((7, WIDTH), np.float32), False),
        "bias": DenseWeight(rng.standard_normal(7, np.float32), False),
        "norm": DenseWeight(rng.standard_normal(WIDTH // 3, np.float32), False),
    }
    return Machine(
        weights=weights,
        ropes=(RopeSpec(2, (0.3,), 1.5),),
        layout=layout,
        kv=PagedKV(layout),
        batch=batch,
        rows=batch.logit_rows,
        buffers={"x": rng.standard_normal((TOKENS, WIDTH), np.float32), **buffers},
    )


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def run(m: Machine, op: Op, out: str = "out") -> Float32:
    OPS[type(op)](m, op)
    result = m.buffers[out]
    assert result.dtype == np.float32
    return result


def test_embed(rng: np.random.Generator) -> None:
    m = machine(rng)
    out = run(m, Embed(out="out", weight="table", scale=3.0))
    assert (out == m.weights["table"].values[[3, 1, 4, 1, 5]] * np.float32(3)).all()


def test_embed_positions(rng: np.random.Generator) -> None:
    m = machine(rng)
    m.weights["positions"] = DenseWeight(rng.standard_normal((9, WIDTH), np.float32), False)
    out = run(m, EmbedPositions(out="out", weight="positions"))
    assert (out == m.weights["positions"].values[[0, 1, 2, 7, 8]]).all()


def test_linear_with_and_without_bias(rng: np.random.Generator) -> None:
    m = machine(rng)
    x, w, bias = m.buffers["x"], m.weights["table"].values, m.weights["bias"].values
    expected = [[sum(x[t, k] * w[n, k] for k in range(WIDTH)) for n in range(7)] for t in range(TOKENS)]
    plain = run(m, Linear(x="x", out="out", weight="table")).copy()
    np.testing.assert_allclose(plain, expected, rtol=1e-5, atol=1e-6)
    biased = run(m, Linear(x="x", out="out", weight="table", bias="bias"))
    np.testing.assert_allclose(biased, expected + bias, rtol=1e-5, atol=1e-6)


def test_rms_norm_in_groups_and_in_place(rng: np.random.Generator) -> None:
    m = machine(rng)
    x, w = m.buffers["x"].copy(), m.weights["norm"].values
    out = run(m, RmsNorm(x="x", out="x", weight="norm", eps=0.01, groups=3), "x")
    for t in range(TOKENS):
        for g in range(3):
            part = x[t, 4 * g : 4 * g + 4].astype(np.float64)
            expected = part / math.sqrt(np.mean(part**2) + 0.01) * w
            np.testing.assert_allclose(out[t, 4 * g : 4 * g + 4], expected, rtol=1e-5)


@pytest.mark.parametrize("bias", [None, "shift"])
def test_layer_norm_in_place(rng: np.random.Generator, bias: str | None) -> None:
    m = machine(rng)
    m.weights |= {name: DenseWeight(rng.standard_normal(WIDTH, np.float32), False) for name in ("gain", "shift")}
    x, gain, shift = m.buffers["x"].copy(), m.weights["gain"].values, m.weights["shift"].values
    out = run(m, LayerNorm(x="x", out="x", weight="gain", eps=0.01, bias=bias), "x")
    for t in range(TOKENS):
        row = x[t].astype(np.float64)
        normed = (row - row.mean()) / math.sqrt(row.var() + 0.01) * gain
        np.testing.assert_allclose(out[t], normed + (0 if bias is None else shift), rtol=1e-5, atol=1e-6)


def test_rope_turns_the_rotary_part_and_leaves_the_rest(rng: np.random.Generator) -> None:
    m = machine(rng)
    x = m.buffers["x"].copy()
    out = run(m, Rope(x="x", heads=3, head_dim=4, rope=0), "x")
    for t, position in enumerate([0, 1, 2, 7, 8]):
        for head in range(3):
            a, b, *rest = x[t, 4 * head : 4 * head + 4]
            turned = (complex(a, b) * complex(math.cos(0.3 * position), math.sin(0.3 * position))) * 1.5
            np.testing.assert_allclose(out[t, 4 * head : 4 * head + 4], [turned.real, turned.imag, *rest], rtol=1e-5)


def test_rope_stays_exact_far_out(rng: np.random.Generator) -> None:
    m = machine(rng)
    m.batch.positions = np.full(TOKENS, 1_000_003, np.int32)
    m.buffers["x"] = np.tile(np.float32([1, 0, 0, 0]), (TOKENS, 3))
    out = run(m, Rope(x="x", heads=3, head_dim=4, rope=0), "x")
    assert out[0, 0] == pytest.approx(1.5 * math.cos(0.3 * 1_000_003), abs=1e-6)


def slow_attention(q, k, v, position: int, window: int | None, scale: float, softcap: float | None):
    """One row: q `[heads, head_dim]` over k, v `[context, kv_heads, head_dim]`, in double precision."""
    first = 0 if window is None else max(0, position - window + 1)
    out = np.zeros((HEADS, HEAD_DIM))
    for head in range(HEADS):
        kv_head = head // (HEADS // KV_HEADS)
        scores = [scale * float(np.dot(q[head], k[p, kv_head])) for p in range(first, position + 1)]
        if softcap is not None:
            scores = [softcap * math.tanh(s / softcap) for s in scores]
        weights = np.exp(np.array(scores) - max(scores))
        out[head] = (weights / weights.sum()) @ v[first : position + 1, kv_head]
    return out.reshape(-1)


@pytest.mark.parametrize("softcap", [None, 0.7])
@pytest.mark.parametrize("window", [None, 1, 3, 8])
def test_attention_sees_its_past_through_the_block_table(
    rng: np.random.Generator, window: int | None, softcap: float | None
) -> None:
    m = machine(rng, window)
    keys, values = rng.standard_normal((2, 2, 9, KV_HEADS, HEAD_DIM), np.float32)
    old_slots = np.array([8, 9, 10, 11, 28, 29, 30], np.int32)  # positions 0 .. 6 of the second sequence
    flat = (7, KV_HEADS * HEAD_DIM)
    m.kv.write(0, old_slots, keys[1, :7].reshape(flat), values[1, :7].reshape(flat))
    m.buffers["k"], m.buffers["v"] = (
        np.concatenate((kv[0, :3], kv[1, 7:])).reshape(TOKENS, -1) for kv in (keys, values)
    )
    m.buffers["q"] = rng.standard_normal((TOKENS, HEADS * HEAD_DIM), np.float32)
    OPS[CacheWrite](m, CacheWrite(k="k", v="v", layer=0))
    out = run(m, Attention(q="q", out="out", layer=0, heads=HEADS, scale=0.6, softcap=softcap))
    q = m.buffers["q"].reshape(TOKENS, HEADS, HEAD_DIM)
    for row, (sequence, position) in enumerate([(0, 0), (0, 1), (0, 2), (1, 7), (1, 8)]):
        expected = slow_attention(q[row], keys[sequence], values[sequence], position, window, 0.6, softcap)
        np.testing.assert_allclose(out[row], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("activation", "f"),
    [
        (Activation.SILU, lambda x: x / (1 + math.exp(-x))),
        (Activation.GELU_TANH, lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
        (Activation.GELU, lambda x: x * math.erfc(-x / math.sqrt(2)) / 2),
        (Activation.RELU, lambda x: max(0.0, x)),
    ],
)
def test_activations(rng: np.random.Generator, activation: Activation, f) -> None:
    gate = np.linspace(-90, 90, TOKENS * WIDTH, dtype=np.float32).reshape(TOKENS, WIDTH)
    m = machine(rng, gate=gate)
    out = run(m, GatedActivation(gate="gate", up="x", out="out", activation=activation))
    expected = np.array([f(float(g)) for g in gate.reshape(-1)]).reshape(gate.shape) * m.buffers["x"]
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    ungated = run(m, Activate(x="gate", out="gate", activation=activation), "gate")
    np.testing.assert_allclose(ungated * m.buffers["x"], expected, rtol=1e-5, atol=1e-6)


def test_silu_of_a_huge_negative_gate_is_zero(rng: np.random.Generator) -> None:
    m = machine(rng, gate=np.full((TOKENS, WIDTH), -1000, np.float32))
    assert (run(m, GatedActivation(gate="gate", up="x", out="out", activation=Activation.SILU)) == 0).all()


def test_add_may_write_what_it_reads(rng: np.random.Generator) -> None:
    y = rng.standard_normal((TOKENS, WIDTH), np.float32)
    m = machine(rng, y=y)
    x = m.buffers["x"].copy()
    assert (run(m, Add(x="x", y="y", out="x"), "x") == x + y).all()
    assert (run(m, Scale(x="y", out="y", factor=0.3), "y") == y * np.float32(0.3)).all()


def test_select_rows_and_capped_logits(rng: np.random.Generator) -> None:
    m = machine(rng)
    rows = run(m, SelectRows(x="x", out="rows"), "rows")
    assert (rows == m.buffers["x"][[2, 4]]).all()
    plain = run(m, Logits(x="rows", out="out", weight="table")).copy()
    np.testing.assert_allclose(plain, rows @ m.weights["table"].values.T, rtol=1e-5)
    capped = run(m, Logits(x="rows", out="out", weight="table", softcap=2.0))
    np.testing.assert_allclose(capped, 2 * np.tanh(plain / 2), rtol=1e-5)


def test_every_op_has_its_function() -> None:
    assert set(OPS) == set(Op.__args__)
