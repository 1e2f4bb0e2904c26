"""StableLM (Bellagente et al. 2024): layer norms, rotary embeddings on a part of each head, gated MLP; in some of its
models attention and MLP read the same norm. A plug-in for Octavo: docs/adding_a_model.md walks through this file."""

from dataclasses import dataclass

from octavo.model.builder import ProgramBuilder
from octavo.model.family import Family
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader
from octavo.model.program import Activation, Buffer, Program, Split
from octavo.model.rope import rope_spec
from octavo.model.sources import ModelDefinition, WeightSource


# --- settings
@dataclass(frozen=True)
class Settings:
    """What config.json says, checked."""

    vocab_size: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    mlp_size: int
    positions: int
    eps: float
    rope_base: float
    rotary_dim: int
    """Of each head: the first so many dimensions turn, the others do not."""
    qkv_bias: bool
    parallel: bool
    """Whether attention and MLP read the same norm of x, so that a layer has one norm."""
    tied: bool


def read_settings(header: CheckpointHeader) -> Settings:
    """Missing and absurd values are errors that name the key, and so is every key that asks for something else."""
    fields = Fields(f"{header.path}: config.json", header.metadata)
    fields.accept("hidden_act", "silu")
    fields.accept("qk_layernorm", False)
    width = fields.integer("hidden_size", 1, 1 << 20)
    heads = fields.integer("num_attention_heads", 1, 4096)
    if width % heads:
        raise fields.error("num_attention_heads", f"does not divide hidden_size={width}")
    # Older files hold rope_theta and partial_rotary_factor at the top, newer ones together in rope_parameters.
    rope = fields.nested("rope_parameters") if fields.has("rope_parameters") else fields
    rope.accept("rope_type", "default")
    fields.accept("rope_scaling")
    part = rope.number("partial_rotary_factor", 0.0, 1.0, default=0.25)
    return Settings(
        vocab_size=fields.integer("vocab_size", 1, 1 << 24),
        width=width,
        layers=fields.integer("num_hidden_layers", 1, 1024),
        heads=heads,
        kv_heads=fields.integer("num_key_value_heads", 1, heads, default=heads),
        mlp_size=fields.integer("intermediate_size", 1, 1 << 20),
        positions=fields.integer("max_position_embeddings", 1, 1 << 30),
        eps=fields.number("layer_norm_eps", 1e-12, 0.1, default=1e-5),
        rope_base=rope.number("rope_theta", 1, 1e12, default=10_000.0),
        rotary_dim=int(width // heads * part),
        qkv_bias=fields.flag("use_qkv_bias", default=False),
        parallel=fields.flag("use_parallel_residual", default=False),
        tied=fields.flag("tie_word_embeddings", default=False),
    )


# --- program
def build(s: Settings) -> Program:
    """The arithmetic, op by op."""
    b = ProgramBuilder("stablelm", ropes=(rope_spec(s.rotary_dim, s.rope_base),))
    x = b.embed("embed", s.vocab_size, s.width, out="x")
    for i in range(s.layers):
        h = b.layer_norm(x, f"layers.{i}.attn.norm", s.eps, out="h")
        x = b.add(x, attention(b, h, s, f"layers.{i}.attn"), out="x")
        if not s.parallel:
            h = b.layer_norm(x, f"layers.{i}.mlp.norm", s.eps, out="h")
        x = b.add(x, mlp(b, h, s, f"layers.{i}.mlp"), out="x")
    hidden = b.layer_norm(b.select_rows(x, out="rows"), "output_norm", s.eps, out="hidden")
    logits = b.logits(hidden, "embed" if s.tied else "output", s.vocab_size, out="logits")
    notes = {"family": "stablelm", "layers": str(s.layers)}
    return b.build({"logits": logits, "hidden": hidden}, s.positions, notes)


def attention(b: ProgramBuilder, h: Buffer, s: Settings, name: str) -> Buffer:
    head_dim = s.width // s.heads
    q = b.linear(h, f"{name}.q", s.heads * head_dim, split=Split.COLUMN, bias=s.qkv_bias, out="q")
    k = b.linear(h, f"{name}.k", s.kv_heads * head_dim, split=Split.COLUMN, bias=s.qkv_bias, out="k")
    v = b.linear(h, f"{name}.v", s.kv_heads * head_dim, split=Split.COLUMN, bias=s.qkv_bias, out="v")
    cache = b.cache_layer(s.kv_heads, head_dim, window=None)
    b.cache_write(b.rope(k, s.kv_heads, rope=0), v, cache)
    mixed = b.attention(b.rope(q, s.heads, rope=0), cache, s.heads, scale=head_dim**-0.5, out="mixed")
    return b.linear(mixed, f"{name}.out", s.width, split=Split.ROW, out="result")  # not h: the MLP may read it again


def mlp(b: ProgramBuilder, h: Buffer, s: Settings, name: str) -> Buffer:
    gate = b.linear(h, f"{name}.gate", s.mlp_size, split=Split.COLUMN, out="gate")
    up = b.linear(h, f"{name}.up", s.mlp_size, split=Split.COLUMN, out="up")
    inner = b.gated(gate, up, Activation.SILU, out="gate")
    return b.linear(inner, f"{name}.down", s.width, split=Split.ROW, out="result")


# --- sources
PARTS = {
    "attn.norm": "input_layernorm",
    "attn.q": "self_attn.q_proj",
    "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj",
    "attn.out": "self_attn.o_proj",
    "mlp.norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}
"""What stands in a layer: name in the program -> name in the file."""
TOP = {"embed": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def source(weight: str) -> WeightSource:
    """The tensor that holds a weight of the program."""
    stem, kind = (weight.removesuffix(".bias"), "bias") if weight.endswith(".bias") else (weight, "weight")
    if stem in TOP:
        return WeightSource(f"{TOP[stem]}.{kind}")
    _, layer, part = stem.split(".", 2)
    return WeightSource(f"model.layers.{layer}.{PARTS[part]}.{kind}")


# --- family
def define(header: CheckpointHeader) -> ModelDefinition:
    settings = read_settings(header)
    program = build(settings)
    copies = ("lm_head.weight",) if settings.tied else ()
    return ModelDefinition(program, {name: source(name) for name in program.weights}, ignored_tensors=copies)


STABLELM = Family(
    name="stablelm",
    gguf_architectures=(),
    hf_architectures=("StableLmForCausalLM",),
    hf_model_types=("stablelm",),
    define=define,
)
