"""Tensors whose being there, or whose shape, is a setting: GGUF has no keys for these."""

from collections.abc import Iterator

from octavo.model.families.mixture import EXPERT_PARTS, GGUF_NAMES
from octavo.model.families.naming import LAYER_PREFIX, LINEARS
from octavo.model.header import Naming
from octavo.model.program import Embed, EmbedPositions, Experts, Program

Shape = tuple[int, ...]

_TABLES = {Embed: "token_embd.weight", EmbedPositions: "position_embd.weight"}
_OUTPUT = "output.weight"
_PREFIX = LAYER_PREFIX[Naming.GGUF]


def telling_shapes(program: Program) -> dict[str, Shape]:
    """Tensor -> shape: tables, the output matrix if it is not one of them, biases, experts."""
    tables = {_TABLES[type(op)]: op.weight for op in program.ops if isinstance(op, Embed | EmbedPositions)}
    if _OUTPUT.removesuffix(".weight") in program.weights:
        tables[_OUTPUT] = "output"
    biases = {f"{_PREFIX.format(0)}{file}.bias": f"layers.0.{part}.bias" for part, file in LINEARS[Naming.GGUF].items()}
    found = {tensor: name for tensor, name in (tables | biases).items() if name in program.weights}
    return {tensor: program.weights[name].shape for tensor, name in found.items()} | dict(_expert_shapes(program))


def _expert_shapes(program: Program) -> Iterator[tuple[str, Shape]]:
    """All experts of a layer are one tensor, the switch of a shared expert is a vector."""
    weights = program.weights
    for op in program.ops:
        if isinstance(op, Experts):
            layer, _, _ = op.gate[0].partition(".experts.")
            prefix = _PREFIX.format(layer.split(".")[1])
            yield prefix + GGUF_NAMES.router, weights[f"{layer}.router"].shape
            for part, names in zip(EXPERT_PARTS, (op.gate, op.up, op.down), strict=True):
                yield prefix + GGUF_NAMES.stacked[part], (len(names), *weights[names[0]].shape)
            if GGUF_NAMES.shared is not None and f"{layer}.shared.switch" in weights:
                yield prefix + GGUF_NAMES.shared["switch"], weights[f"{layer}.shared.switch"].shape[1:]
