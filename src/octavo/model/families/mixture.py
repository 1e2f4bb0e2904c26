"""Mixture of experts in a decoder (Shazeer et al. 2017; Jiang et al. 2024): the block, and the names of its weights."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from octavo.model.builder import ProgramBuilder
from octavo.model.config import DecoderConfig, Mixture, Sizes
from octavo.model.families.naming import LAYER_PREFIX
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Buffer, Routing, Split
from octavo.model.sources import OnlyRow, Rows, Stacked, WeightSource

EXPERT_PARTS = ("gate", "up", "down")
_MAX_EXPERTS = 4096
_MAX_WIDTH = 1 << 20


def mixture_mlp(b: ProgramBuilder, h: Buffer, config: DecoderConfig, mixture: Mixture, index: int) -> Buffer:
    """The experts' weighted sum, and what the shared expert adds to it."""
    w = f"layers.{index}.mlp"
    logits = b.linear(h, f"{w}.router", mixture.num_experts, split=Split.REPLICATED, out="router")
    routes = b.route(logits, mixture.num_active, mixture.routing, out="routes")
    mixed = b.experts(
        h, routes, f"{w}.experts", mixture.num_experts, mixture.inner_size, config.activation, out="mixture"
    )
    if mixture.shared_size is None:
        return mixed
    shared = _shared_expert(b, h, config, mixture.shared_size, f"{w}.shared")
    return b.add(mixed, shared, out="mixture")


def _shared_expert(b: ProgramBuilder, h: Buffer, config: DecoderConfig, size: int, w: str) -> Buffer:
    """`sigmoid(switch . h) * down(activation(gate(h)) * up(h))`."""
    switch = b.linear(h, f"{w}.switch", 1, split=Split.REPLICATED, out="switch")
    gate = b.linear(h, f"{w}.gate", size, split=Split.COLUMN, out="shared_gate")
    up = b.linear(h, f"{w}.up", size, split=Split.COLUMN, out="shared_up")
    inner = b.gated(gate, up, config.activation, out="shared_gate")
    shared = b.linear(inner, f"{w}.down", h.width, split=Split.ROW, out="shared")
    return b.sigmoid_scale(shared, switch, out="shared")


def gguf_mixture(
    header: CheckpointHeader, fields: Fields, sizes: Sizes, *, renormalised: bool, shared: bool = False
) -> Mixture | None:
    """The mixture that GGUF metadata describe; the layers that have it are those with a router. None without experts.

    Args:
        renormalised: what the architecture does where `expert_weights_norm` does not say.
        shared: whether the architecture has a shared expert.

    Raises:
        ModelFileError, UnsupportedModelError: as `gguf_sizes`.
    """
    for key in ("expert_group_count", "expert_group_used_count", "leading_dense_block_count"):
        fields.accept(key, 0)
    fields.accept("expert_gating_func", 0, 1)
    fields.accept("expert_weights_scale", 0.0, 1.0)
    fields.accept("expert_shared_count", *((0, 1) if shared else (0,)))
    count = fields.integer("expert_count", 0, _MAX_EXPERTS, default=0)
    if count == 0:
        return None
    active = fields.integer("expert_used_count", 1, count)
    # Older files leave the widths out. An expert's is then a share of the MLP's, but in llama's architecture all of it.
    width = sizes.mlp_size // active if shared else sizes.mlp_size
    shared_key = "expert_shared_feed_forward_length"
    routers = (LAYER_PREFIX[Naming.GGUF].format(i) + GGUF_NAMES.router for i in range(sizes.num_layers))
    return Mixture(
        num_experts=count,
        num_active=active,
        inner_size=fields.integer("expert_feed_forward_length", 1, _MAX_WIDTH, default=width),
        routing=routing(renormalised=fields.flag("expert_weights_norm", default=renormalised)),
        layers=tuple(router in header.shapes for router in routers),
        shared_size=fields.integer(shared_key, 1, _MAX_WIDTH, default=sizes.mlp_size) if shared else None,
    )


def hf_mixture(fields: Fields, layers: Sequence[bool], inner_size: int, rule: Routing) -> Mixture:
    """The mixture of a config.json: transformers writes the number of experts under either of two names."""
    key = "num_experts" if fields.has("num_experts") else "num_local_experts"
    count = fields.integer(key, 1, _MAX_EXPERTS)
    return Mixture(
        num_experts=count,
        num_active=fields.integer("num_experts_per_tok", 1, count),
        inner_size=inner_size,
        routing=rule,
        layers=tuple(layers),
    )


def hf_width(fields: Fields, key: str) -> int:
    """The width of an expert."""
    return fields.integer(key, 1, _MAX_WIDTH)


def qwen_mixture(fields: Fields, num_layers: int) -> Mixture:
    """The mixture of a config.json of qwen's models, without a shared expert. Windows are refused: no such model has
    been published with one."""
    fields.accept("use_sliding_window", False)
    fields.accept("layer_types", ["full_attention"] * num_layers)
    rule = routing(renormalised=fields.flag("norm_topk_prob", default=False))
    sparse = _sparse_layers(fields, num_layers)
    return hf_mixture(fields, sparse, hf_width(fields, "moe_intermediate_size"), rule)


def _sparse_layers(fields: Fields, num_layers: int) -> list[bool]:
    """Every `decoder_sparse_step`-th, but those in `mlp_only_layers`."""
    step = fields.integer("decoder_sparse_step", 1, 1024, default=1)
    dense = fields.items("mlp_only_layers") if fields.has("mlp_only_layers") else []
    if not all(isinstance(layer, int) for layer in dense):
        raise fields.error("mlp_only_layers", "must list numbers of layers")
    return [layer not in dense and (layer + 1) % step == 0 for layer in range(num_layers)]


def routing(*, renormalised: bool) -> Routing:
    """The rule behind `norm_topk_prob`."""
    return Routing.SHARE_OF_CHOSEN if renormalised else Routing.SHARE_OF_ALL


@dataclass(frozen=True)
class MixtureNames:
    """What a kind of file calls the parts of the block, behind the name of their layer."""

    router: str
    expert: Mapping[str, str]
    """Part -> its matrix, with the expert's number at `{}`."""
    stacked: Mapping[str, str]
    """Part -> all experts' matrices as one tensor; the first that a file has decides."""
    fused: str
    """Gate above up of all experts, as one tensor."""
    shared: Mapping[str, str] | None = None


_GGUF_EXPERT = {part: f"ffn_{part}.{{}}.weight" for part in EXPERT_PARTS}
_GGUF_STACKED = {part: f"ffn_{part}_exps.weight" for part in EXPERT_PARTS}
_GGUF_SHARED = {part: f"ffn_{part}_shexp.weight" for part in EXPERT_PARTS} | {"switch": "ffn_gate_inp_shexp.weight"}
GGUF_NAMES = MixtureNames("ffn_gate_inp.weight", _GGUF_EXPERT, _GGUF_STACKED, "ffn_gate_up_exps.weight", _GGUF_SHARED)

_HF_STACKED = {"down": "mlp.experts.down_proj"}
_HF_FUSED = "mlp.experts.gate_up_proj"
_HF_SHARED = {part: f"mlp.shared_expert.{part}_proj.weight" for part in EXPERT_PARTS} | {
    "switch": "mlp.shared_expert_gate.weight"
}
QWEN_NAMES = MixtureNames(
    "mlp.gate.weight",
    {part: f"mlp.experts.{{}}.{part}_proj.weight" for part in EXPERT_PARTS},
    _HF_STACKED,
    _HF_FUSED,
    _HF_SHARED,
)
QWEN_EXPERTS = {Naming.GGUF: GGUF_NAMES, Naming.HF: QWEN_NAMES}
MIXTRAL_NAMES = MixtureNames(
    "block_sparse_moe.gate.weight",
    {
        "gate": "block_sparse_moe.experts.{}.w1.weight",
        "up": "block_sparse_moe.experts.{}.w3.weight",
        "down": "block_sparse_moe.experts.{}.w2.weight",
    },
    _HF_STACKED,
    _HF_FUSED,
)


def mixture_sources(config: DecoderConfig, header: CheckpointHeader, names: MixtureNames) -> dict[str, WeightSource]:
    """Sources of the blocks of all layers that have one."""
    found: dict[str, WeightSource] = {}
    mixture = config.mixture
    if mixture is None:
        return found
    for index in (i for i, has_experts in enumerate(mixture.layers) if has_experts):
        file = _LayerFile(LAYER_PREFIX[header.naming].format(index), header, names, mixture)
        found |= {f"layers.{index}.mlp.{name}": source for name, source in file.sources()}
    return found


def is_fused(header: CheckpointHeader) -> bool:
    """Whether a Hugging Face file holds one tensor for all experts of a layer, as transformers has them in memory."""
    return any(name.endswith(_HF_FUSED) for name in header.shapes)


@dataclass(frozen=True)
class _LayerFile:
    """One layer of a file."""

    prefix: str
    header: CheckpointHeader
    names: MixtureNames
    mixture: Mixture

    def sources(self) -> Iterator[tuple[str, WeightSource]]:
        yield "router", WeightSource(self.prefix + self.names.router)
        for part in EXPERT_PARTS:
            for expert in range(self.mixture.num_experts):
                yield f"experts.{expert}.{part}", self._expert(part, expert)
        if self.mixture.shared_size is not None and self.names.shared is not None:
            for part, name in self.names.shared.items():
                yield f"shared.{part}", self._shared(name)

    def _expert(self, part: str, expert: int) -> WeightSource:
        count, inner = self.mixture.num_experts, self.mixture.inner_size
        fused = self.prefix + self.names.fused
        if fused in self.header.shapes and part != "down":
            start = 0 if part == "gate" else inner
            return WeightSource(fused, Stacked(expert, count, Rows(start, start + inner, 2 * inner)))
        stacked = self.prefix + self.names.stacked.get(part, "")
        if stacked in self.header.shapes:
            return WeightSource(stacked, Stacked(expert, count))
        return WeightSource(self.prefix + self.names.expert[part].format(expert))

    def _shared(self, name: str) -> WeightSource:
        """GGUF files hold the switch, which has one output, as a vector."""
        tensor = self.prefix + name
        is_vector = len(self.header.shapes.get(tensor, ())) == 1
        return WeightSource(tensor, OnlyRow() if is_vector else None)
