"""What either kind of metadata says of a plain decoder. A family starts from it and changes what is its own."""

from collections.abc import Collection
from dataclasses import replace

from octavo.model.config import DecoderConfig, LayerKind, Sizes
from octavo.model.families.naming import EMBEDDING, gguf_is_tied, model_name
from octavo.model.families.sizes import gguf_sizes, hf_sizes
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Activation, RopeSpec
from octavo.model.rope import DEFAULT_BASE, gguf_max_positions, gguf_rope, hf_max_positions, hf_rope


def gguf_decoder(
    header: CheckpointHeader,
    fields: Fields,
    family: str,
    *,
    computed: Collection[str] = (),
    with_experts: bool = False,
) -> DecoderConfig:
    """The decoder of a GGUF file. Biases are there where the first layer has them.

    Args and errors: as of `gguf_sizes`.
    """
    sizes = gguf_sizes(header, fields, EMBEDDING[Naming.GGUF], computed=computed, with_experts=with_experts)
    sizes = replace(sizes, max_positions=gguf_max_positions(fields, sizes.max_positions))
    plain = _plain(header, family, sizes, gguf_rope(header, fields, sizes), tied=gguf_is_tied(header))
    qkv, out, mlp = (f"blk.0.{name}.bias" in header.shapes for name in ("attn_q", "attn_output", "ffn_up"))
    return replace(plain, qkv_bias=qkv, out_bias=out, mlp_bias=mlp)


def hf_decoder(
    header: CheckpointHeader,
    fields: Fields,
    family: str,
    *,
    activation_key: str = "hidden_act",
    activation: str = "silu",
    head_dim: int | None = None,
    tied: bool = False,
    rope_base: float = DEFAULT_BASE,
    partial_rotary: bool = False,
    with_experts: bool = False,
) -> DecoderConfig:
    """The decoder of a config.json, without biases.

    Args:
        activation_key, activation: the key that must name the family's activation, if it is there.
        head_dim, tied, rope_base: what the family's config class has where the config does not say.
        partial_rotary: the family rotates a part of each head where the config asks for it.
        with_experts: as of `hf_sizes`, as are the errors.
    """
    fields.accept(activation_key, activation)
    sizes = hf_sizes(fields, head_dim=head_dim, with_experts=with_experts)
    sizes = replace(sizes, max_positions=hf_max_positions(fields, sizes.max_positions))
    rope = hf_rope(fields, sizes, header.context, base=rope_base, partial=partial_rotary)
    return _plain(header, family, sizes, rope, tied=fields.flag("tie_word_embeddings", default=tied))


def with_hf_biases(config: DecoderConfig, fields: Fields) -> DecoderConfig:
    """With the biases that `attention_bias` and `mlp_bias` switch on."""
    attention = fields.flag("attention_bias", default=False)
    mlp = fields.flag("mlp_bias", default=False)
    return replace(config, qkv_bias=attention, out_bias=attention, mlp_bias=mlp)


def _plain(header: CheckpointHeader, family: str, sizes: Sizes, rope: RopeSpec, *, tied: bool) -> DecoderConfig:
    return DecoderConfig(
        family=family,
        name=model_name(header, family),
        sizes=sizes,
        ropes=(rope,),
        layers=(LayerKind(),) * sizes.num_layers,
        activation=Activation.SILU,
        attention_scale=sizes.head_dim**-0.5,
        tied_embeddings=tied,
    )
