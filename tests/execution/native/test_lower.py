"""Lowering passes on hand-made programs: what is folded, what must not be."""

import numpy as np

from octavo.execution.native.lower import (
    distinct_orders,
    find_local,
    fold_adds,
    gather_sections,
    join_linears,
    lower,
    quantize_inputs,
    reorder_inputs,
)
from octavo.execution.native.stages import (
    LinearStage,
    Quantize,
    Reorder,
    RowSection,
    RowStage,
    Segment,
    Softcap,
    stage_names,
)
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
    Logits,
    Program,
    RmsNorm,
    Rope,
    RopeSpec,
    SelectRows,
)


def linear(x: str, *outs: str) -> LinearStage:
    return LinearStage(x, tuple(Segment(f"w.{out}", None, out) for out in outs))


def test_a_sum_after_a_linear_is_folded_into_it() -> None:
    for add in (Add(x="x", y="h", out="x"), Add(x="h", y="x", out="x")):
        (stage,) = fold_adds([linear("a", "h"), add], outputs=())
        assert stage == LinearStage("a", (Segment("w.h", None, "x", add=True),))


def test_a_sum_is_kept_where_folding_would_change_something() -> None:
    first = linear("a", "h")
    kept = [
        [first, Add(x="x", y="h", out="y")],  # not in place
        [first, Add(x="x", y="h", out="h")],  # into the linear's own buffer
        [linear("x", "h"), Add(x="x", y="h", out="x")],  # the linear reads what it would write
        [first, Add(x="h", y="h", out="h")],
        [first, Add(x="x", y="h", out="x"), RmsNorm(x="h", out="z", weight="n", eps=1e-5)],  # h is read later
        [first, RmsNorm(x="h", out="h", weight="n", eps=1e-5), Add(x="x", y="h", out="x")],  # not neighbours
    ]
    for ops in kept:
        assert fold_adds(ops, outputs=()) == ops
    assert fold_adds([first, Add(x="x", y="h", out="x")], outputs=("h",))[0] == first
    overwritten = [first, Add(x="x", y="h", out="x"), linear("x", "h")]
    assert len(fold_adds(overwritten, outputs=("h",))) == 2


def test_neighbouring_linears_over_one_buffer_are_joined() -> None:
    assert join_linears([linear("h", "q"), linear("h", "k"), linear("h", "v")]) == [linear("h", "q", "k", "v")]
    apart = [linear("h", "q"), linear("g", "k")]
    assert join_linears(apart) == apart
    same_target = [linear("h", "q"), linear("h", "q")]
    assert join_linears(same_target) == same_target
    summed = LinearStage("h", (Segment("w.k", None, "q", add=True),))
    assert join_linears([linear("h", "q"), summed]) == [linear("h", "q"), summed]


def test_an_input_is_quantised_once_per_content() -> None:
    norm = RmsNorm(x="x", out="h", weight="n", eps=1e-5)
    gate = linear("h", "gate")
    ops = quantize_inputs([norm, gate, linear("h", "up"), norm, linear("h", "q")], {"w.gate", "w.up", "w.q"})
    assert ops == [norm, Quantize("h"), gate, linear("h", "up"), norm, Quantize("h"), linear("h", "q")]
    assert quantize_inputs([norm, gate], int8_weights=()) == [norm, gate]
    mixed = linear("h", "q", "k")
    assert quantize_inputs([mixed], {"w.k"}) == [Quantize("h"), mixed]


def test_sections_end_at_attention_and_where_the_dimension_changes() -> None:
    buffers = {"x": Buffer("x", "tokens", 8), "r": Buffer("r", "rows", 8)}
    embed, cap = Embed(out="x", weight="e"), Softcap("r", 3.0)
    select = SelectRows(x="x", out="r")
    attention = Attention(q="x", out="x", layer=0, heads=1, scale=1.0)
    write = CacheWrite(k="x", v="x", layer=0)
    ops = [embed, Quantize("x"), linear("x", "x"), write, attention, attention, write, select, cap]
    assert list(gather_sections(ops, buffers)) == [
        RowSection("tokens", (RowStage((embed, Quantize("x"))), linear("x", "x"), RowStage((write,)))),
        attention,
        attention,
        RowSection("tokens", (RowStage((write,)),)),
        RowSection("rows", (RowStage((select, cap)),)),
    ]


def test_local_is_what_every_section_writes_first() -> None:
    norm = RmsNorm(x="x", out="h", weight="n", eps=1e-5)
    first = RowSection("tokens", (RowStage((Embed(out="x", weight="e"), norm, Quantize("h"))), linear("h", "q")))
    attention = Attention(q="q", out="mixed", layer=0, heads=1, scale=1.0)
    second = RowSection("tokens", (RowStage((Quantize("mixed"),)), linear("mixed", "h"), RowStage((norm,))))
    assert find_local([first, attention, second]) == {"h", "h (int8)", "mixed (int8)"}
    third = RowSection("tokens", (linear("h", "y"),))  # reads h, and its int8 form, from the section before
    assert find_local([first, attention, second, attention, third]) == {"mixed (int8)", "y"}


def test_a_layer_becomes_two_sections() -> None:
    widths = {"x": 32, "h": 32, "q": 32, "k": 32, "v": 32, "mixed": 32, "gate": 64, "up": 64}
    buffers = {name: Buffer(name, "tokens", width) for name, width in widths.items()}
    buffers |= {"rows": Buffer("rows", "rows", 32), "logits": Buffer("logits", "rows", 100)}
    program = Program(
        name="layer",
        ops=(
            Embed(out="x", weight="e"),
            RmsNorm(x="x", out="h", weight="n", eps=1e-5),
            Linear(x="h", out="q", weight="q"),
            Linear(x="h", out="k", weight="k"),
            Linear(x="h", out="v", weight="v"),
            Rope(x="q", heads=1, head_dim=32, rope=0),
            Rope(x="k", heads=1, head_dim=32, rope=0),
            CacheWrite(k="k", v="v", layer=0),
            Attention(q="q", out="mixed", layer=0, heads=1, scale=1.0),
            Linear(x="mixed", out="h", weight="o"),
            Add(x="x", y="h", out="x"),
            RmsNorm(x="x", out="h", weight="n", eps=1e-5),
            Linear(x="h", out="gate", weight="g"),
            Linear(x="h", out="up", weight="u"),
            GatedActivation(gate="gate", up="up", out="gate", activation=Activation.SILU),
            Linear(x="gate", out="h", weight="d"),
            Add(x="x", y="h", out="x"),
            SelectRows(x="x", out="rows"),
            Logits(x="rows", out="logits", weight="e", softcap=30.0),
        ),
        buffers=buffers,
        weights={},
        cache_layers=(CacheLayer(1, 32),),
        ropes=(RopeSpec(32, (1.0,) * 16),),
        outputs={"logits": "logits"},
        vocab_size=100,
        max_positions=64,
    )
    lowered = lower(program, {"q", "k", "v", "o", "g", "u", "d", "e"})
    assert [" | ".join(stage_names(section)) for section in lowered.sections] == [
        "Embed+RmsNorm+Quantize | linear q+k+v | Rope+Rope+CacheWrite",
        "attention",
        "Quantize | linear o | RmsNorm+Quantize | linear g+u | GatedActivation+Quantize | linear d",
        "SelectRows+Quantize | linear e | Softcap",
    ]
    assert set(buffers) - lowered.local == {"x", "q", "mixed", "logits"}
    sums = [
        [segment.add for stage in section.stages if isinstance(stage, LinearStage) for segment in stage.segments]
        for section in lowered.sections
        if isinstance(section, RowSection)
    ]
    assert sums == [[False] * 3, [True, False, False, True], [False]]


ORDER, OTHER = np.array([2, 0, 1], np.int32), np.array([1, 2, 0], np.int32)


def test_inputs_are_reordered_once_per_content_and_order() -> None:
    orders, order_of = distinct_orders({"w.q": ORDER, "w.k": ORDER.copy(), "w.v": OTHER})
    assert [order.tolist() for order in orders] == [ORDER.tolist(), OTHER.tolist()]
    assert order_of == {"w.q": 0, "w.k": 0, "w.v": 1}
    write = RmsNorm(x="x", out="h", weight="n", eps=1e-5)
    ops = [linear("h", "q"), linear("h", "k"), linear("h", "v"), linear("h", "plain"), write, linear("h", "q")]
    first, second = Reorder("h", 0, "h in order 0"), Reorder("h", 1, "h in order 1")
    assert reorder_inputs(ops, order_of) == [
        first,
        linear("h in order 0", "q"),
        linear("h in order 0", "k"),
        second,
        linear("h in order 1", "v"),
        linear("h", "plain"),
        write,
        first,
        linear("h in order 0", "q"),
    ]


def test_a_copy_in_another_order_is_a_local_buffer() -> None:
    width = 64
    buffers = {name: Buffer(name, "tokens", width) for name in ("x", "h")}
    ops = (Embed(out="x", weight="embed"), Linear(x="x", out="h", weight="w"), Add(x="x", y="h", out="x"))
    program = Program(
        name="", ops=ops, buffers=buffers, weights={}, cache_layers=(), ropes=(), outputs={"x": "x"}, vocab_size=1,
        max_positions=1,
    )  # fmt: skip
    lowered = lower(program, {"w"}, {"w": np.arange(width, dtype=np.int32)[::-1].copy()})
    copy = "x in order 0"
    assert lowered.buffers[copy] == Buffer(copy, "tokens", width)
    assert {copy, f"{copy} (int8)"} <= lowered.local
    (section,) = lowered.sections
    assert isinstance(section, RowSection)
    assert section.stages == (
        RowStage((ops[0], Reorder("x", 0, copy), Quantize(copy))),
        LinearStage(copy, (Segment("w", None, "x", add=True),)),
    )
