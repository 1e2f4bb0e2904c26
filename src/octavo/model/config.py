"""What a decoder family needs to know to build its program."""

from dataclasses import dataclass

from octavo.model.program import Activation, RopeSpec, Routing


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The numbers every decoder has."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    mlp_size: int
    max_positions: int
    """Longest context the model was trained for."""
    rms_eps: float


@dataclass(frozen=True)
class LayerKind:
    """How one layer's attention sees positions."""

    rope: int = 0
    """Index into the config's ropes."""
    window: int | None = None
    """Sliding window in tokens, the token itself included; None: full attention."""


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Mixture of experts in the place of some layers' MLP."""

    num_experts: int
    num_active: int
    """Experts that a token meets."""
    inner_size: int
    """Width between the linears of an expert."""
    routing: Routing
    layers: tuple[bool, ...]
    """[num_layers] whether it has experts; the others have an MLP of `Sizes.mlp_size`."""
    shared_size: int | None = None
    """Width of an MLP beside the experts that every token meets, behind a gate of its own; None: there is none."""


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """One decoder-only model, independent of the file it came from."""

    family: str
    name: str
    """For people: the model's own name for itself."""
    sizes: Sizes
    ropes: tuple[RopeSpec, ...]
    layers: tuple[LayerKind, ...]
    """[num_layers]"""
    activation: Activation
    attention_scale: float
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    embed_scale: float = 1.0
    residual_scale: float = 1.0
    """Multiplies what a block adds to x."""
    logit_scale: float = 1.0
    qkv_bias: bool = False
    out_bias: bool = False
    """Of attention's output."""
    mlp_bias: bool = False
    qk_norm: bool = False
    """Every head of q and k is normed."""
    qk_norm_over_heads: bool = False
    """Their norms run over all heads together."""
    mixture: Mixture | None = None
    tied_embeddings: bool = False
    """The logits use the embedding table: one weight, held once."""
