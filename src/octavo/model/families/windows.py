"""Which layers of a decoder see a window only."""

from collections.abc import Sequence

from octavo.model.config import LayerKind
from octavo.model.fields import Fields

MAX_WINDOW = 1 << 30
_SLIDING, _FULL = "sliding_attention", "full_attention"
_GGUF_PATTERN = "attention.sliding_window_pattern"


def layer_kinds(
    is_sliding: Sequence[bool], window: int, *, local_rope: int = 0, full_rope: int = 0
) -> tuple[LayerKind, ...]:
    """A kind for each layer; ropes are indices into the config's."""
    local, full = LayerKind(local_rope, window), LayerKind(full_rope)
    return tuple(local if sliding else full for sliding in is_sliding)


def periodic(period: int, layers: int) -> list[bool]:
    """Every so many layers one sees everything, the others a window."""
    return [(i + 1) % period != 0 for i in range(layers)]


def gguf_sliding(fields: Fields, layers: int, period: int) -> list[bool]:
    """Whether each layer has a window: `sliding_window_pattern` is a period, or one truth value per layer.

    Args:
        period: where the file does not say.
    """
    if not fields.has(_GGUF_PATTERN) or isinstance(fields.values[fields.prefix + _GGUF_PATTERN], int):
        return periodic(fields.integer(_GGUF_PATTERN, 1, layers + 1, default=period), layers)
    pattern = fields.items(_GGUF_PATTERN)
    if len(pattern) != layers or not all(isinstance(p, bool) for p in pattern):
        raise fields.error(_GGUF_PATTERN, f"must be a period or {layers} truth values")
    return [bool(p) for p in pattern]


def hf_sliding(fields: Fields, layers: int, otherwise: Sequence[bool]) -> list[bool]:
    """Whether each layer has a window: `layer_types` names each layer's kind.

    Args:
        otherwise: where the config does not say.
    """
    if not fields.has("layer_types"):
        return list(otherwise)
    kinds = fields.items("layer_types")
    if len(kinds) != layers or not set(kinds) <= {_SLIDING, _FULL}:
        raise fields.error("layer_types", f"must name {_SLIDING} or {_FULL} for each of {layers} layers")
    return [kind == _SLIDING for kind in kinds]


def qwen_layers(fields: Fields, layers: int) -> tuple[LayerKind, ...]:
    """The layers of Qwen's config.json: without `use_sliding_window` none has a window, whatever the other keys say;
    with it those from `max_window_layers` on, or those that `layer_types` names."""
    if not fields.flag("use_sliding_window", default=False):
        fields.accept("layer_types", [_FULL] * layers)
        return (LayerKind(),) * layers
    first = fields.integer("max_window_layers", 0, MAX_WINDOW, default=28)
    sliding = hf_sliding(fields, layers, [i >= first for i in range(layers)])
    return layer_kinds(sliding, fields.integer("sliding_window", 1, MAX_WINDOW, default=4096))
