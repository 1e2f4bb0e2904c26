"""EAGLE-3 heads (Li et al. 2025, arXiv:2503.01840): one llama layer over the token's embedding and a projection of what
runs through the target at three depths, with a vocabulary of its own.

    f = fc [x behind layer a | b | c], or the head's own x of the token before;  e = input_norm(embed(token p + 1));
    h = hidden_norm(f);  q, k, v = projections of [e | h];  x = f + attention;  x = x + mlp(norm(x));
    logits = lm_head(norm(x)), row i is token i + d2t[i];  the next token's f is x

With `norm_before_residual` x starts from h instead of f.
"""

from octavo.model.builder import ProgramBuilder
from octavo.model.config import DecoderConfig
from octavo.model.draft_head import HIDDEN, HeadDefinition, HeadLayout
from octavo.model.families.decoder import gated_mlp, mix
from octavo.model.families.head_fields import (
    LAYER_PARTS,
    ROTARY_TABLES,
    borrowed_tables,
    head_config,
    head_fields,
    projection_biases,
    table_sources,
)
from octavo.model.features import hidden_size, num_layers, with_layer_features
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader
from octavo.model.program import Buffer, Program, Split
from octavo.model.sources import Columns, WeightSource

_FC, _FC_BIAS = "fc.weight", "fc.bias"
_OUTPUT = "lm_head.weight"
_OFFSETS = "d2t"
_LAYER_NAMES = ("midlayer.", "layers.0.")
_PROJECTIONS = ("attn.q", "attn.k", "attn.v")
_LAYER_IDS = "eagle_aux_hidden_state_layer_ids"


def define(header: CheckpointHeader, target: Program) -> HeadDefinition:
    fields, config = head_fields(header), head_config(header, target, "eagle3")
    if config.sizes.num_layers != 1:
        raise fields.error("num_hidden_layers", "is not 1, the only number that Octavo computes for EAGLE-3 heads")
    draft_vocab = _draft_vocab(header, fields, config)
    depths = tapped_depths(header, fields, target)
    parts = [f"features.{index}" for index in range(len(depths))]
    bias = "features.bias" if _FC_BIAS in header.shapes else None
    return HeadDefinition(
        program=_program(config, draft_vocab, norm_first=fields.flag("norm_before_residual", default=False)),
        target=with_layer_features(target, depths, parts, config.sizes.hidden_size, bias=bias),
        sources=_sources(header, config, hidden_size(target), parts),
        borrowed=borrowed_tables(header, target),
        ignored_tensors=ROTARY_TABLES,
        offsets=_OFFSETS if _OFFSETS in header.tables else None,
    )


def tapped_depths(header: CheckpointHeader, fields: Fields, target: Program) -> tuple[int, ...]:
    """Behind how many layers of the target the head's features are taken.

    `eagle_aux_hidden_state_layer_ids` counts layers before; inside `eagle_config` it names the layer itself, one less.
    Where neither is there, behind 2, half, and all but 3, as the first heads were trained.
    """
    layers = num_layers(target)
    inner = Fields(f"{fields.path}: eagle_config", fields.nested("eagle_config").values)
    inner.accept("use_aux_hidden_state", True)
    if fields.has(_LAYER_IDS):
        depths, where = _depths(fields, 0), fields
    elif inner.has(_LAYER_IDS):
        depths, where = _depths(inner, 1), inner
    else:
        depths, where = (2, layers // 2, layers - 3), fields
    if any(not 0 <= depth <= layers for depth in depths):
        problem = f"takes hidden states behind {list(depths)} layers of a target that has {layers}: take its own head"
        raise where.error(_LAYER_IDS, problem)
    _require_columns(header, depths, hidden_size(target))
    return depths


def _depths(fields: Fields, more: int) -> tuple[int, ...]:
    values = fields.items(_LAYER_IDS)
    if not values or not all(type(value) is int for value in values):
        raise fields.error(_LAYER_IDS, "must be whole numbers of layers, at least one")
    return tuple(int(str(value)) + more for value in values)


def _require_columns(header: CheckpointHeader, depths: tuple[int, ...], width: int) -> None:
    shape = header.shapes[_FC]
    if len(shape) != 2 or shape[1] != len(depths) * width:
        raise Fields(header.path, {_FC: list(shape)}).error(
            _FC,
            f"does not take {len(depths)} hidden states of {width} values, which is what this target gives behind"
            f" {list(depths)} layers: take the head that was made for it",
        )


def _draft_vocab(header: CheckpointHeader, fields: Fields, config: DecoderConfig) -> int:
    vocab = config.sizes.vocab_size
    size = fields.integer("draft_vocab_size", 1, vocab, default=vocab)
    if size != vocab and (_OFFSETS not in header.tables or _OUTPUT not in header.shapes):
        problem = f"is not the vocabulary of {vocab}, so tensors {_OFFSETS} and {_OUTPUT} are needed"
        raise fields.error("draft_vocab_size", problem)
    return size


def _program(config: DecoderConfig, draft_vocab: int, *, norm_first: bool) -> Program:
    s = config.sizes
    b = ProgramBuilder(config.name, config.ropes)
    f = b.given(HIDDEN, s.hidden_size)
    e = b.embed("embed", s.vocab_size, s.hidden_size, out="e")
    e = b.rms_norm(e, "layers.0.attn.norm", s.rms_eps, out="e")
    h = b.rms_norm(f, "layers.0.hidden_norm", s.rms_eps, out="normed")
    x = b.add(h if norm_first else f, _attention(b, e, h, config), out="x")
    h = b.rms_norm(x, "layers.0.mlp.norm", s.rms_eps, out="h")
    x = b.add(x, gated_mlp(b, h, config, 0), out="x")
    rows = b.select_rows(x, out="rows")
    normed = b.rms_norm(rows, "output_norm", s.rms_eps, out="last")
    logits = b.logits(normed, "output", draft_vocab, out="logits")
    return b.build({"logits": logits, HIDDEN: rows}, s.max_positions, {"family": config.family})


def _attention(b: ProgramBuilder, e: Buffer, h: Buffer, config: DecoderConfig) -> Buffer:
    """Attention over [e | h]: each projection is the sum of one of e and one of h."""
    s = config.sizes
    widths = {"q": s.num_heads * s.head_dim, "k": s.num_kv_heads * s.head_dim, "v": s.num_kv_heads * s.head_dim}
    parts = {
        part: b.linear(e, f"layers.0.attn.{part}.embed", width, split=Split.COLUMN, bias=config.qkv_bias, out=part)
        for part, width in widths.items()
    }
    for part, width in widths.items():
        term = b.linear(h, f"layers.0.attn.{part}.hidden", width, split=Split.COLUMN, out=f"{part}.term")
        parts[part] = b.add(parts[part], term, out=part)
    return mix(b, parts["q"], parts["k"], parts["v"], config, 0)


def _sources(
    header: CheckpointHeader, config: DecoderConfig, target_width: int, parts: list[str]
) -> dict[str, WeightSource]:
    width, layer = config.sizes.hidden_size, _layer_prefix(header)
    found = {**table_sources(header), "output_norm": WeightSource("norm.weight")}
    found["layers.0.hidden_norm"] = WeightSource(f"{layer}hidden_norm.weight")
    for name, file in LAYER_PARTS.items():
        tensor = f"{layer}{file}.weight"
        if name in _PROJECTIONS:
            found[f"layers.0.{name}.embed"] = WeightSource(tensor, Columns(0, width, 2 * width))
            found[f"layers.0.{name}.hidden"] = WeightSource(tensor, Columns(width, 2 * width, 2 * width))
        else:
            found[f"layers.0.{name}"] = WeightSource(tensor)
    found |= projection_biases(config, "layers.0.", layer, suffix=".embed")
    all_columns = len(parts) * target_width
    for index, part in enumerate(parts):
        columns = Columns(index * target_width, (index + 1) * target_width, all_columns)
        found[part] = WeightSource(_FC, columns)
    if _FC_BIAS in header.shapes:
        found["features.bias"] = WeightSource(_FC_BIAS)
    return found


def _layer_prefix(header: CheckpointHeader) -> str:
    return next(prefix for prefix in _LAYER_NAMES if _hidden_norm(prefix) in header.shapes)


def _hidden_norm(prefix: str) -> str:
    return f"{prefix}hidden_norm.weight"


def _matches(header: CheckpointHeader) -> bool:
    return _FC in header.shapes and any(_hidden_norm(prefix) in header.shapes for prefix in _LAYER_NAMES)


EAGLE3 = HeadLayout(name="eagle3", matches=_matches, define=define)
