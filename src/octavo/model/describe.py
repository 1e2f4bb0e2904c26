"""A program as text for people."""

from collections.abc import Callable
from typing import Any

from octavo.model.cost import kv_values_per_token, num_parameters
from octavo.model.program import (
    Activate,
    Add,
    Attention,
    CacheWrite,
    Embed,
    EmbedPositions,
    Experts,
    GatedActivation,
    LayerNorm,
    Linear,
    Logits,
    Op,
    Program,
    RmsNorm,
    Rope,
    Route,
    Scale,
    SelectRows,
    SigmoidScale,
)

_KV_VALUE_BYTES = 2


def describe(program: Program) -> str:
    """The program's sizes, state and ops, one op a line with the shapes of what it writes and multiplies."""
    return "\n".join((*_head(program), "", *_buffers(program), "", *_ops(program)))


def _head(program: Program) -> list[str]:
    values = kv_values_per_token(program)
    notes = ", ".join(f"{key} {value}" for key, value in program.notes.items())
    return [
        f"{program.name}: {notes}",
        f"parameters         {num_parameters(program):,}",
        f"vocabulary         {program.vocab_size:,}",
        f"longest context    {program.max_positions:,} tokens",
        f"KV per token       {values:,} values, {values * _KV_VALUE_BYTES:,} bytes at {_KV_VALUE_BYTES} bytes each",
        f"cache layers       {_cache_kinds(program)}",
        f"rotary embeddings  {_ropes(program)}",
    ]


def _ropes(program: Program) -> str:
    return ", ".join(f"{r.rotary_dim} dims, slowest {r.inv_freq[-1]:.3g}" for r in program.ropes) or "none"


def _cache_kinds(program: Program) -> str:
    kinds: dict[str, int] = {}
    for layer in program.cache_layers:
        reach = "full" if layer.window is None else f"window {layer.window}"
        kind = f"{layer.kv_heads} x {layer.head_dim} {reach}"
        kinds[kind] = kinds.get(kind, 0) + 1
    return ", ".join(f"{count} of {kind}" for kind, count in kinds.items())


def _buffers(program: Program) -> list[str]:
    roles = {name: f"  output: {role}" for role, name in program.outputs.items()}
    roles |= {name: f"  input: {role}" for role, name in program.inputs.items()}
    return ["buffers"] + [
        f"  {b.name:<8} [{b.dim}, {b.width}]{roles.get(b.name, '')}" for b in program.buffers.values()
    ]


def _ops(program: Program) -> list[str]:
    width = len(str(len(program.ops)))
    return [f"{i:>{width}}  {_TEXTS[type(op)](program, op)}" for i, op in enumerate(program.ops)]


def _weight(program: Program, name: str) -> str:
    return f"{name}[{', '.join(map(str, program.weights[name].shape))}]"


def _bias(program: Program, name: str | None) -> str:
    return "" if name is None else f" + {_weight(program, name)}"


def _softcap(value: float | None) -> str:
    return "" if value is None else f", softcap {value:g}"


def _embed(p: Program, op: Embed) -> str:
    return f"{op.out} = {_weight(p, op.weight)}[token ids]" + ("" if op.scale == 1 else f" * {op.scale:g}")


def _embed_positions(p: Program, op: EmbedPositions) -> str:
    return f"{op.out} = {_weight(p, op.weight)}[positions]"


def _linear(p: Program, op: Linear) -> str:
    return f"{op.out} = {op.x} @ {_weight(p, op.weight)}.T{_bias(p, op.bias)}  ({op.split})"


def _rms_norm(p: Program, op: RmsNorm) -> str:
    groups = "" if op.groups == 1 else f" in {op.groups} groups"
    return f"{op.out} = rms_norm({op.x}{groups}, eps {op.eps:.3g}) * {_weight(p, op.weight)}"


def _layer_norm(p: Program, op: LayerNorm) -> str:
    return f"{op.out} = layer_norm({op.x}, eps {op.eps:.3g}) * {_weight(p, op.weight)}{_bias(p, op.bias)}"


def _rope(p: Program, op: Rope) -> str:
    return f"{op.x} = rotate({op.x}: {op.heads} heads of {op.head_dim}, rope {op.rope})"


def _cache_write(p: Program, op: CacheWrite) -> str:
    return f"cache {op.layer} <- {op.k}, {op.v}"


def _attention(p: Program, op: Attention) -> str:
    layer = p.cache_layers[op.layer]
    reach = "" if layer.window is None else f", window {layer.window}"
    heads = f"{op.heads} heads over {layer.kv_heads}"
    return f"{op.out} = attention({op.q}, cache {op.layer}: {heads}, scale {op.scale:g}{reach}{_softcap(op.softcap)})"


def _gated(p: Program, op: GatedActivation) -> str:
    return f"{op.out} = {op.activation}({op.gate}) * {op.up}"


def _activate(p: Program, op: Activate) -> str:
    return f"{op.out} = {op.activation}({op.x})"


def _route(p: Program, op: Route) -> str:
    return f"{op.out} = route({op.logits}, top {op.top_k} of {p.buffers[op.logits].width}, {op.routing})"


def _experts(p: Program, op: Experts) -> str:
    first, last = (name.removesuffix(".gate") for name in (op.gate[0], op.gate[-1]))
    inner, width = p.weights[op.gate[0]].shape
    return f"{op.out} = experts({op.x}, {op.routes}: {first} .. {last}, {op.activation}, {width} -> {inner} -> {width})"


def _sigmoid_scale(p: Program, op: SigmoidScale) -> str:
    return f"{op.out} = {op.x} * sigmoid({op.gate})"


def _add(p: Program, op: Add) -> str:
    return f"{op.out} = {op.x} + {op.y}"


def _scale(p: Program, op: Scale) -> str:
    return f"{op.out} = {op.x} * {op.factor:g}"


def _select_rows(p: Program, op: SelectRows) -> str:
    return f"{op.out} = {op.x}[wanted rows]"


def _logits(p: Program, op: Logits) -> str:
    return f"{op.out} = {op.x} @ {_weight(p, op.weight)}.T{_softcap(op.softcap)}"


_TEXTS: dict[type[Op], Callable[[Program, Any], str]] = {
    Embed: _embed,
    EmbedPositions: _embed_positions,
    Linear: _linear,
    RmsNorm: _rms_norm,
    LayerNorm: _layer_norm,
    Rope: _rope,
    CacheWrite: _cache_write,
    Attention: _attention,
    GatedActivation: _gated,
    Activate: _activate,
    Route: _route,
    Experts: _experts,
    SigmoidScale: _sigmoid_scale,
    Add: _add,
    Scale: _scale,
    SelectRows: _select_rows,
    Logits: _logits,
}
