"""What the builder makes of calls, and the mistakes it catches."""

from collections.abc import Callable

import pytest

from octavo.model.builder import ProgramBuilder
from octavo.model.program import Activation, Buffer, Linear, RopeSpec, Split
from octavo.model.rope import rope_spec

WIDE = rope_spec(8, 10000.0)


def builder(rope: RopeSpec = WIDE) -> tuple[ProgramBuilder, Buffer]:
    b = ProgramBuilder("tiny", (rope,))
    return b, b.embed("embed", 10, 16, out="x")


def test_a_layer_uses_the_buffers_of_the_one_before() -> None:
    b, x = builder()
    first = b.linear(x, "a", 8, split=Split.COLUMN, out="q")
    second = b.linear(x, "b", 8, split=Split.COLUMN, out="q")
    assert first == second == Buffer("q", "tokens", 8)


def test_weights_get_the_shape_of_their_use() -> None:
    b, x = builder()
    b.linear(x, "a", 8, split=Split.ROW, bias=True, out="q")
    rows = b.select_rows(b.rms_norm(x, "n", 1e-6, groups=4, out="x"), out="rows")
    program = b.build({"logits": b.logits(rows, "embed", 10, out="logits")}, 100, {"family": "none"})
    shapes = {weight.name: weight.shape for weight in program.weights.values()}
    assert shapes == {"embed": (10, 16), "a": (8, 16), "a.bias": (8,), "n": (4,)}
    assert (program.vocab_size, program.max_positions, program.outputs) == (10, 100, {"logits": "logits"})
    assert program.ops[1] == Linear(x="x", out="q", weight="a", bias="a.bias", split=Split.ROW)


def linear(b: ProgramBuilder, x: Buffer, width: int, out: str) -> Buffer:
    return b.linear(x, f"to_{out}_{width}", width, split=Split.COLUMN, out=out)


MISTAKES: dict[str, Callable[[ProgramBuilder, Buffer], object]] = {
    "cannot also hold": lambda b, x: linear(b, x, 8, "x2") and linear(b, x, 9, "x2"),
    "cannot also have shape": lambda b, x: b.linear(x, "embed", 11, split=Split.COLUMN, out="y"),
    "cannot be both read and written": lambda b, x: b.linear(x, "w", 16, split=Split.COLUMN, out="x"),
    "does not divide into 3 groups": lambda b, x: b.rms_norm(x, "n", 1e-6, groups=3, out="x"),
    "does not divide into 3 heads": lambda b, x: b.rope(x, 3, 0),
    "wider than a head": lambda b, x: b.rope(x, 4, 0),
    "as wide as a token": lambda b, x: b.cache_write(x, x, b.cache_layer(1, 8, None)),
    "is not 4 heads of 8": lambda b, x: b.attention(x, b.cache_layer(1, 8, None), 4, scale=1.0, out="y"),
    "do not share 3 KV heads evenly": lambda b, x: b.attention(x, b.cache_layer(3, 8, None), 2, scale=1.0, out="y"),
    "must have one shape": lambda b, x: b.add(x, linear(b, x, 8, "y"), out="x"),
    "and .* must have one shape": lambda b, x: b.gated(x, linear(b, x, 8, "y"), Activation.SILU, out="x"),
    "select them first": lambda b, x: b.logits(x, "embed", 10, out="logits"),
    "holds rows already": lambda b, x: b.select_rows(b.select_rows(x, out="rows"), out="more"),
    "lack logits": lambda b, x: b.build({"hidden": x}, 1, {}),
}


@pytest.mark.parametrize("problem", MISTAKES)
def test_a_mistake_names_program_and_op(problem: str) -> None:
    b, x = builder()
    with pytest.raises(ValueError, match=rf"program tiny, op \d+: .*{problem}"):
        MISTAKES[problem](b, x)
