"""Programs of one kind of op over and over, so that the native executor can be timed op by op."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo.execution.quant import TensorType, quantize
from octavo.execution.weights import LoadedWeight
from octavo.model.program import (
    Activation,
    Add,
    Attention,
    Buffer,
    CacheLayer,
    CacheWrite,
    Embed,
    GatedActivation,
    Linear,
    Op,
    Program,
    RmsNorm,
    Rope,
    RopeSpec,
    Weight,
)

TOKENS = 64
"""Different tokens where the embedding only makes up inputs."""

_NO_CACHE = (CacheLayer(kv_heads=1, head_dim=8),)
"""An executor wants a cache layer, used or not."""


@dataclass(frozen=True)
class Sizes:
    """The shapes of a model, as far as its ops depend on them."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab_size: int
    activation: Activation = Activation.SILU

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """(outputs, inputs) of each linear; those that read the same input are one, as in the executor."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "qkv": (q + 2 * kv, self.hidden),
            "o": (self.hidden, q),
            "gate_up": (2 * self.intermediate, self.hidden),
            "down": (self.hidden, self.intermediate),
            "logits": (self.vocab_size, self.hidden),
        }


@dataclass(frozen=True)
class OpProgram:
    """A program, its weights, and the ops of it that are measured."""

    program: Program
    weights: dict[str, LoadedWeight]
    measured: tuple[Op, ...]


def linear_program(tensor_type: TensorType, outputs: int, inputs: int, copies: int) -> OpProgram:
    """`copies` linears one after the other, each with a weight of its own: together they should exceed the caches."""
    weight = _random_weight(tensor_type, outputs, inputs)
    names = [f"{i}.linear" for i in range(copies)]
    ops = tuple(Linear(x="x", out="y", weight=name) for name in names)
    return _assemble(
        [Embed(out="x", weight="inputs"), *ops],
        {"x": inputs, "y": outputs},
        {"inputs": _table(inputs), **dict.fromkeys(names, weight)},
        ops,
    )


def attention_program(heads: int, layer: CacheLayer, layers: int) -> OpProgram:
    """Cache writes and attention, `layers` times."""
    widths = dict.fromkeys(("k", "v"), layer.kv_heads * layer.head_dim) | {"q": heads * layer.head_dim}
    inputs = [Embed(out=name, weight=f"{name}.inputs") for name in widths]
    ops: list[Op] = []
    for i in range(layers):
        ops += [
            CacheWrite(k="k", v="v", layer=i),
            Attention(q="q", out="mixed", layer=i, heads=heads, scale=layer.head_dim**-0.5),
        ]
    tables = {f"{name}.inputs": _table(width) for name, width in widths.items()}
    measured = tuple(op for op in ops if isinstance(op, Attention))
    return _assemble([*inputs, *ops], widths | {"mixed": widths["q"]}, tables, measured, cache=(layer,) * layers)


def row_programs(sizes: Sizes, copies: int) -> dict[str, OpProgram]:
    """Row-wise ops by name, each `copies` times over the same buffers."""
    q = sizes.heads * sizes.head_dim
    spec = RopeSpec(sizes.head_dim, tuple(10000.0 ** (-2 * i / sizes.head_dim) for i in range(sizes.head_dim // 2)))
    ops: dict[str, tuple[Op, dict[str, int]]] = {
        "norm": (RmsNorm(x="x", out="x", weight="gain", eps=1e-5), {"x": sizes.hidden}),
        "rope": (Rope(x="q", heads=sizes.heads, head_dim=sizes.head_dim, rope=0), {"q": q}),
        "activation": (
            GatedActivation(gate="g", up="u", out="h", activation=sizes.activation),
            {"g": sizes.intermediate, "u": sizes.intermediate},
        ),
        "add": (Add(x="x", y="y", out="x"), {"x": sizes.hidden, "y": sizes.hidden}),
    }
    programs = {}
    for name, (op, widths) in ops.items():
        weights = {f"{buffer}.inputs": _table(width) for buffer, width in widths.items()}
        inputs = [Embed(out=buffer, weight=f"{buffer}.inputs") for buffer in widths]
        repeated = (op,) * copies
        if isinstance(op, RmsNorm):
            weights["gain"] = _gain(sizes.hidden)
        if isinstance(op, GatedActivation):
            widths = {**widths, op.out: sizes.intermediate}
        programs[name] = _assemble([*inputs, *repeated], widths, weights, repeated, ropes=(spec,))
    return programs


def norm_and_quantise_program(sizes: Sizes, copies: int) -> OpProgram:
    """What stands before most linears, as one stage: a norm, and the int8 form of what it gives. In between, a linear
    of few outputs asks for that form anew."""
    norm = RmsNorm(x="x", out="n", weight="gain", eps=1e-5)
    pair: tuple[Op, ...] = (norm, Linear(x="n", out="y", weight="linear"))
    weights = {
        "x.inputs": _table(sizes.hidden),
        "gain": _gain(sizes.hidden),
        "linear": _random_weight(TensorType.Q8_0, 32, sizes.hidden),
    }
    widths = {"x": sizes.hidden, "n": sizes.hidden, "y": 32}
    return _assemble([Embed(out="x", weight="x.inputs"), *pair * copies], widths, weights, (norm,) * copies)


def embed_program(tensor_type: TensorType, vocab_size: int, width: int) -> OpProgram:
    """The embedding of a whole vocabulary."""
    weights = {"table": _random_weight(tensor_type, vocab_size, width)}
    op = Embed(out="x", weight="table")
    return _assemble([op], {"x": width}, weights, (op,), vocab_size=vocab_size)


def _assemble(
    ops: Sequence[Op],
    widths: dict[str, int],
    weights: dict[str, LoadedWeight],
    measured: tuple[Op, ...],
    *,
    cache: tuple[CacheLayer, ...] = _NO_CACHE,
    ropes: tuple[RopeSpec, ...] = (),
    vocab_size: int = TOKENS,
) -> OpProgram:
    program = Program(
        name="ops",
        ops=tuple(ops),
        buffers={name: Buffer(name, "tokens", width) for name, width in widths.items()},
        weights={name: Weight(name, weight.shape) for name, weight in weights.items()},
        cache_layers=cache,
        ropes=ropes,
        outputs={"logits": next(reversed(widths))},
        vocab_size=vocab_size,
        max_positions=2**20,
    )
    return OpProgram(program, weights, measured)


def _table(width: int) -> LoadedWeight:
    values = _noise((TOKENS, width))
    return LoadedWeight.of(TensorType.F32, values.shape, values.reshape(-1).view(np.uint8))


def _gain(width: int) -> LoadedWeight:
    return LoadedWeight.of(TensorType.F32, (width,), np.ones(width, np.float32).view(np.uint8))


def _random_weight(tensor_type: TensorType, outputs: int, inputs: int) -> LoadedWeight:
    """Noise that keeps the size of what it multiplies; large weights repeat a piece of it."""
    piece = quantize(tensor_type, _noise((min(outputs, 1024), inputs)) * np.float32(inputs**-0.5))
    return LoadedWeight.of(tensor_type, (outputs, inputs), np.resize(piece, tensor_type.num_bytes((outputs, inputs))))


def _noise(shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
