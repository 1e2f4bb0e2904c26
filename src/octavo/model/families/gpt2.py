"""GPT-2 (Radford et al. 2019): pre-norm decoder with layer norms, biases everywhere, learned positions that are added
to the embeddings, plain multi-head attention and an ungated MLP."""

from dataclasses import dataclass

from octavo.model.builder import ProgramBuilder
from octavo.model.families.activations import hf_activation
from octavo.model.families.naming import EMBEDDING, OUTPUT, gguf_is_tied, model_name
from octavo.model.families.sizes import gguf_fields, hf_fields
from octavo.model.family import Family
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Activation, Buffer, Program, Split
from octavo.model.sources import ModelDefinition, Rows, Transposed, WeightSource

_MOST = 1 << 20
_POSITIONS = "position_embd.weight"

_TOP = {
    Naming.GGUF: {
        "embed": EMBEDDING[Naming.GGUF],
        "positions": _POSITIONS,
        "output_norm": "output_norm.weight",
        "output_norm.bias": "output_norm.bias",
    },
    Naming.HF: {
        "embed": "wte.weight",
        "positions": "wpe.weight",
        "output_norm": "ln_f.weight",
        "output_norm.bias": "ln_f.bias",
    },
}
_NORMS = {
    Naming.GGUF: {"attn.norm": "attn_norm", "mlp.norm": "ffn_norm"},
    Naming.HF: {"attn.norm": "ln_1", "mlp.norm": "ln_2"},
}
_LINEARS = {
    Naming.GGUF: {"attn.out": "attn_output", "mlp.up": "ffn_up", "mlp.down": "ffn_down"},
    Naming.HF: {"attn.out": "attn.c_proj", "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"},
}
_FUSED = {Naming.GGUF: "attn_qkv", Naming.HF: "attn.c_attn"}
_LAYER = {Naming.GGUF: "blk.{}.", Naming.HF: "h.{}."}


@dataclass(frozen=True, kw_only=True)
class Gpt2Config:
    """One model of the family, independent of the file it came from."""

    name: str
    vocab_size: int
    width: int
    num_layers: int
    num_heads: int
    mlp_size: int
    num_positions: int
    """Rows of the table of positions."""
    max_positions: int
    eps: float
    activation: Activation
    scales: tuple[float, ...]
    """[num_layers] what attention's scores are multiplied by."""
    tied: bool


def build(config: Gpt2Config) -> Program:
    c = config
    b = ProgramBuilder(c.name, ropes=())
    x = b.embed("embed", c.vocab_size, c.width, out="x")
    x = b.add(x, b.embed_positions("positions", c.num_positions, c.width, out="h"), out="x")
    for i in range(c.num_layers):
        h = b.layer_norm(x, f"layers.{i}.attn.norm", c.eps, out="h")
        x = b.add(x, _attention(b, h, c, i), out="x")
        h = b.layer_norm(x, f"layers.{i}.mlp.norm", c.eps, out="h")
        x = b.add(x, _mlp(b, h, c, i), out="x")
    hidden = b.layer_norm(b.select_rows(x, out="rows"), "output_norm", c.eps, out="hidden")
    logits = b.logits(hidden, "embed" if c.tied else "output", c.vocab_size, out="logits")
    notes = {"family": "gpt2", "layers": str(c.num_layers), "heads": str(c.num_heads)}
    return b.build({"logits": logits, "hidden": hidden}, c.max_positions, notes)


def _attention(b: ProgramBuilder, h: Buffer, c: Gpt2Config, index: int) -> Buffer:
    w = f"layers.{index}.attn"
    q, k, v = (b.linear(h, f"{w}.{part}", c.width, split=Split.COLUMN, bias=True, out=part) for part in "qkv")
    cache = b.cache_layer(c.num_heads, c.width // c.num_heads, window=None)
    b.cache_write(k, v, cache)
    mixed = b.attention(q, cache, c.num_heads, scale=c.scales[index], out="mixed")
    return b.linear(mixed, f"{w}.out", c.width, split=Split.ROW, bias=True, out="h")


def _mlp(b: ProgramBuilder, h: Buffer, c: Gpt2Config, index: int) -> Buffer:
    w = f"layers.{index}.mlp"
    inner = b.linear(h, f"{w}.up", c.mlp_size, split=Split.COLUMN, bias=True, out="inner")
    inner = b.activate(inner, c.activation, out="inner")
    return b.linear(inner, f"{w}.down", c.width, split=Split.ROW, bias=True, out="h")


def config_from_hf(header: CheckpointHeader) -> Gpt2Config:
    """`reorder_and_upcast_attn` changes what half precision rounds, not what is computed: attention is float32 here."""
    fields = hf_fields(header)
    for key in ("quantization_config", "compression_config"):
        fields.accept(key)
    fields.accept("pruned_heads", {})
    fields.accept("add_cross_attention", False)
    width, layers = fields.integer("n_embd", 1, _MOST), fields.integer("n_layer", 1, 1024)
    heads = _heads(fields, "n_head", width)
    positions = fields.integer("n_positions", 1, _MOST)
    return Gpt2Config(
        name=model_name(header, "gpt2"),
        vocab_size=fields.integer("vocab_size", 1, 1 << 24),
        width=width,
        num_layers=layers,
        num_heads=heads,
        mlp_size=fields.integer("n_inner", 1, _MOST, default=4 * width),
        num_positions=positions,
        max_positions=positions,
        eps=fields.number("layer_norm_epsilon", 1e-12, 0.1, default=1e-5),
        activation=hf_activation(fields, "activation_function", default="gelu_new"),
        scales=_hf_scales(fields, layers, width // heads),
        tied=fields.flag("tie_word_embeddings", default=True),
    )


def _hf_scales(fields: Fields, layers: int, head_dim: int) -> tuple[float, ...]:
    scale = head_dim**-0.5 if fields.flag("scale_attn_weights", default=True) else 1.0
    by_layer = fields.flag("scale_attn_by_inverse_layer_idx", default=False)
    return tuple(scale / (i + 1) if by_layer else scale for i in range(layers))


def config_from_gguf(header: CheckpointHeader) -> Gpt2Config:
    fields = gguf_fields(header, "gpt2")
    for key in ("attention.clamp_kqv", "attention.max_alibi_bias", "attention.scale"):
        fields.accept(key, 0.0)
    fields.accept("expert_count", 0)
    fields.accept("use_parallel_residual", False)
    width, layers = fields.integer("embedding_length", 1, _MOST), fields.integer("block_count", 1, 1024)
    heads = _heads(fields, "attention.head_count", width)
    fields.accept("attention.head_count_kv", heads)
    for key in ("attention.key_length", "attention.value_length"):
        fields.accept(key, width // heads)
    return Gpt2Config(
        name=model_name(header, "gpt2"),
        vocab_size=_num_rows(header, EMBEDDING[Naming.GGUF]),
        width=width,
        num_layers=layers,
        num_heads=heads,
        mlp_size=fields.integer("feed_forward_length", 1, _MOST),
        num_positions=_num_rows(header, _POSITIONS),
        max_positions=fields.integer("context_length", 1, _num_rows(header, _POSITIONS)),
        eps=fields.number("attention.layer_norm_epsilon", 1e-12, 0.1),
        activation=Activation.GELU_TANH,
        scales=((width // heads) ** -0.5,) * layers,
        tied=gguf_is_tied(header),
    )


def _heads(fields: Fields, key: str, width: int) -> int:
    heads = fields.integer(key, 1, 4096)
    if width % heads:
        raise fields.error(key, f"does not divide the width {width}")
    return heads


def _num_rows(header: CheckpointHeader, table: str) -> int:
    """Rows of a table that the metadata do not count; 1 if it is not there, which the loader will tell."""
    return header.shapes.get(table, (1,))[0]


def sources(config: Gpt2Config, header: CheckpointHeader) -> dict[str, WeightSource]:
    """Hugging Face files hold matrices as `[in, out]`; those of the base model alone lack the prefix `transformer.`."""
    naming, prefix = header.naming, _prefix(header)
    found = {name: WeightSource(prefix + tensor) for name, tensor in _TOP[naming].items()}
    if not config.tied:
        found["output"] = WeightSource(OUTPUT[naming])
    for i in range(config.num_layers):
        stored = prefix + _LAYER[naming].format(i)
        layer = _norm_sources(stored, naming) | _linear_sources(stored, naming) | _qkv_sources(stored, naming, config)
        found |= {f"layers.{i}.{name}": source for name, source in layer.items()}
    return found


def _prefix(header: CheckpointHeader) -> str:
    is_base = header.naming is Naming.GGUF or "wte.weight" in header.shapes
    return "" if is_base else "transformer."


def _norm_sources(stored: str, naming: Naming) -> dict[str, WeightSource]:
    weights = {name: WeightSource(f"{stored}{file}.weight") for name, file in _NORMS[naming].items()}
    return weights | {f"{name}.bias": WeightSource(f"{stored}{file}.bias") for name, file in _NORMS[naming].items()}


def _linear_sources(stored: str, naming: Naming) -> dict[str, WeightSource]:
    turned = Transposed() if naming is Naming.HF else None
    weights = {name: WeightSource(f"{stored}{file}.weight", turned) for name, file in _LINEARS[naming].items()}
    return weights | {f"{name}.bias": WeightSource(f"{stored}{file}.bias") for name, file in _LINEARS[naming].items()}


def _qkv_sources(stored: str, naming: Naming, config: Gpt2Config) -> dict[str, WeightSource]:
    """q, k and v are one tensor."""
    width, file = config.width, stored + _FUSED[naming]
    found = {}
    for index, part in enumerate("qkv"):
        rows = Rows(index * width, (index + 1) * width, 3 * width)
        found[f"attn.{part}"] = WeightSource(f"{file}.weight", Transposed(rows) if naming is Naming.HF else rows)
        found[f"attn.{part}.bias"] = WeightSource(f"{file}.bias", rows)
    return found


def _redundant(config: Gpt2Config, header: CheckpointHeader) -> tuple[str, ...]:
    """The causal mask, which older Hugging Face files store, and a copy of tied embeddings."""
    if header.naming is Naming.GGUF:
        return ()
    masks = tuple(f"{_prefix(header)}h.*.attn.{name}" for name in ("bias", "masked_bias"))
    return (*masks, OUTPUT[Naming.HF]) if config.tied else masks


def define(header: CheckpointHeader) -> ModelDefinition:
    config = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}[header.naming](header)
    return ModelDefinition(build(config), sources(config, header), _redundant(config, header))


GPT2 = Family(
    name="gpt2",
    gguf_architectures=("gpt2",),
    hf_architectures=("GPT2LMHeadModel",),
    hf_model_types=("gpt2",),
    define=define,
)
