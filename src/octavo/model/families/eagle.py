"""EAGLE heads of the first two papers (Li et al. 2024, arXiv:2401.15077, arXiv:2406.16858): one llama layer, seldom
more, that carries the target's final hidden states on by a token.

    x = fc [embed(token p + 1) | hidden p];  x = layers(x), the first without a norm before its attention;
    logits = x @ (the target's output matrix).T;  the next token's hidden is x

The layers' arithmetic is llama's, with qwen2's biases where the file has them.
"""

from octavo.model.builder import ProgramBuilder
from octavo.model.config import DecoderConfig
from octavo.model.draft_head import HIDDEN, HeadDefinition, HeadLayout
from octavo.model.families.decoder import gated_mlp, self_attention
from octavo.model.families.head_fields import (
    LAYER_PARTS,
    ROTARY_TABLES,
    borrowed_tables,
    head_config,
    projection_biases,
    require_width,
    table_sources,
)
from octavo.model.features import hidden_size, with_normed_features
from octavo.model.header import CheckpointHeader
from octavo.model.program import Program, Split
from octavo.model.sources import Columns, WeightSource

_FC = "fc.weight"
_FC_BIAS = "fc.bias"
_INPUT_NORM = "attn.norm"


def define(header: CheckpointHeader, target: Program) -> HeadDefinition:
    config = head_config(header, target, "eagle")
    require_width(header, "hidden_size", config.sizes.hidden_size, hidden_size(target))
    return HeadDefinition(
        program=_program(config, has_bias=_FC_BIAS in header.shapes),
        target=with_normed_features(target),
        sources=_sources(header, config),
        borrowed=borrowed_tables(header, target),
        ignored_tensors=ROTARY_TABLES,
    )


def _program(config: DecoderConfig, *, has_bias: bool) -> Program:
    s = config.sizes
    b = ProgramBuilder(config.name, config.ropes)
    embedded = b.embed("embed", s.vocab_size, s.hidden_size, out="e")
    hidden = b.given(HIDDEN, s.hidden_size)
    x = b.linear(embedded, "fc.embed", s.hidden_size, split=Split.REPLICATED, bias=has_bias, out="x")
    x = b.add(x, b.linear(hidden, "fc.hidden", s.hidden_size, split=Split.REPLICATED, out="h"), out="x")
    for i in range(s.num_layers):
        h = x if i == 0 else b.rms_norm(x, f"layers.{i}.{_INPUT_NORM}", s.rms_eps, out="h")
        x = b.add(x, self_attention(b, h, config, i), out="x")
        h = b.rms_norm(x, f"layers.{i}.mlp.norm", s.rms_eps, out="h")
        x = b.add(x, gated_mlp(b, h, config, i), out="x")
    rows = b.select_rows(x, out="rows")
    logits = b.logits(rows, "output", s.vocab_size, out="logits")
    return b.build({"logits": logits, HIDDEN: rows}, s.max_positions, {"family": config.family})


def _sources(header: CheckpointHeader, config: DecoderConfig) -> dict[str, WeightSource]:
    width = config.sizes.hidden_size
    found = table_sources(header)
    found["fc.embed"] = WeightSource(_FC, Columns(0, width, 2 * width))
    found["fc.hidden"] = WeightSource(_FC, Columns(width, 2 * width, 2 * width))
    if _FC_BIAS in header.shapes:
        found["fc.embed.bias"] = WeightSource(_FC_BIAS)
    for i in range(config.sizes.num_layers):
        prefix = f"layers.{i}."
        parts = {name: file for name, file in LAYER_PARTS.items() if i > 0 or name != _INPUT_NORM}
        found |= {prefix + name: WeightSource(f"{prefix}{file}.weight") for name, file in parts.items()}
        found |= projection_biases(config, prefix, prefix)
    return found


EAGLE = HeadLayout(name="eagle", matches=lambda header: _FC in header.shapes, define=define)
