"""What the layouts of draft heads share: their settings, the names of a layer's tensors, and what they borrow."""

from octavo.errors import UnsupportedModelError
from octavo.model.config import DecoderConfig, LayerKind
from octavo.model.families.naming import LINEARS, PRE_NORMS
from octavo.model.families.sizes import hf_fields, hf_sizes
from octavo.model.features import hidden_size
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Activation, Embed, Logits, Program
from octavo.model.rope import hf_rope
from octavo.model.sources import WeightSource

LAYER_PARTS = {**LINEARS[Naming.HF], **PRE_NORMS[Naming.HF]}
"""A layer's weights: canonical name -> tensor, without the layer and `.weight`."""

ROTARY_TABLES = ("*.self_attn.rotary_emb.inv_freq",)
"""Tensors that say again what the settings say."""

_TABLES = {"embed": "embed_tokens.weight", "output": "lm_head.weight"}
_BIASES = {"attn.q": "self_attn.q_proj", "attn.k": "self_attn.k_proj", "attn.v": "self_attn.v_proj"}
_ARCHITECTURES = (
    "Eagle3LlamaForCausalLM",
    "Eagle3Speculator",
    "EagleLlamaForCausalLM",
    "LlamaForCausalLM",
    "LlamaForCausalLMEagle",
    "LlamaForCausalLMEagle3",
    "Qwen2ForCausalLM",
)
"""All of them one arithmetic in a head; biases are there where the file has them."""


def head_fields(header: CheckpointHeader) -> Fields:
    """The settings of a head: config.json, with the layer's in `transformer_layer_config` where it has one."""
    fields = hf_fields(header)
    inner = fields.nested("transformer_layer_config").values
    return Fields(fields.path, {**fields.values, **inner, "architectures": fields.values.get("architectures")})


def head_config(header: CheckpointHeader, target: Program, family: str) -> DecoderConfig:
    """The head's layers as a decoder's; its vocabulary must be the target's.

    Raises:
        ModelFileError, UnsupportedModelError: as `HeadLayout.define`.
    """
    fields = head_fields(header)
    _require_llama(fields)
    fields.accept("hidden_act", "silu")
    fields.accept("mlp_bias", False)
    sizes = hf_sizes(fields)
    if sizes.vocab_size != target.vocab_size:
        problem = f"is not the target's {target.vocab_size}: take the head that was made for this model"
        raise fields.error("vocab_size", problem)
    return DecoderConfig(
        family=family,
        name=family,
        sizes=sizes,
        ropes=(hf_rope(fields, sizes, header.context),),
        layers=(LayerKind(),) * sizes.num_layers,
        activation=Activation.SILU,
        attention_scale=sizes.head_dim**-0.5,
        qkv_bias=any(name.endswith("q_proj.bias") for name in header.shapes),
    )


def _require_llama(fields: Fields) -> None:
    names = fields.items("architectures") if fields.has("architectures") else []
    if names and names[0] not in _ARCHITECTURES:
        raise UnsupportedModelError(
            f"{fields.path}: architectures={names!r:.120} is no draft head that Octavo computes; it computes"
            f" {', '.join(_ARCHITECTURES)}"
        )


def require_width(header: CheckpointHeader, key: str, width: int, wanted: int) -> None:
    """
    Raises:
        ModelFileError: the head is not as wide as the target.
    """
    if width != wanted:
        problem = f"is not the target's {wanted}: take the head that was made for this model"
        raise head_fields(header).error(key, problem)


def table_sources(header: CheckpointHeader) -> dict[str, WeightSource]:
    """Embedding and output matrix, as far as the head has its own."""
    return {name: WeightSource(tensor) for name, tensor in _TABLES.items() if tensor in header.shapes}


def borrowed_tables(header: CheckpointHeader, target: Program) -> dict[str, str]:
    """The rest of them: those of the target, which must then be as wide as the head.

    Raises:
        ModelFileError: it is not.
    """
    lent = {"embed": _weight_of(target, Embed), "output": _weight_of(target, Logits)}
    lacking = [name for name, tensor in _TABLES.items() if tensor not in header.shapes]
    if lacking:
        require_width(header, "hidden_size", hf_sizes(head_fields(header)).hidden_size, hidden_size(target))
    return {name: lent[name] for name in lacking}


def _weight_of(program: Program, kind: type[Embed | Logits]) -> str:
    return next(op.weight for op in program.ops if isinstance(op, kind))


def projection_biases(config: DecoderConfig, prefix: str, stored: str, suffix: str = "") -> dict[str, WeightSource]:
    """Biases of q, k and v where the file has them; `prefix` and `stored` name the layer here and in the file."""
    if not config.qkv_bias:
        return {}
    return {f"{prefix}{name}{suffix}.bias": WeightSource(f"{stored}{file}.bias") for name, file in _BIASES.items()}
