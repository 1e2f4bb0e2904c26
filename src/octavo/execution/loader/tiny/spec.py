"""What a tiny model is, before it is written in one format or the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from octavo.errors import ConfigError
from octavo.execution.quant import TensorType

Architecture = Literal[
    "llama", "granite", "phi3", "olmo2", "qwen2", "gemma2", "gemma3", "gpt2", "mixtral", "qwen2_moe", "qwen3_moe"
]  # fmt: skip
Kin = Literal["llama", "qwen2", "gemma3", "gpt2"]
VocabularyKind = Literal["bpe", "spm"]
FileFormat = Literal["gguf", "safetensors"]

_GEMMAS = ("gemma2", "gemma3")


@dataclass(frozen=True, kw_only=True)
class TinyModel:
    """Sizes and choices of a model; equal descriptions give equal weights and vocabularies in both formats."""

    architecture: Architecture = "llama"
    tensor_type: TensorType = TensorType.F32
    """Of the matrices. Norms and biases are F32 (in safetensors: of the matrices' type, where that is a float type)."""
    embedding_type: TensorType | None = None
    """Of the token embedding and the output matrix; default: `tensor_type`."""
    layers: int = 2
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int | None = None
    """Default: hidden / heads."""
    intermediate: int = 128
    vocab_size: int = 512
    """Rows of the embedding; ids past the vocabulary's own tokens are padding, as in real models."""
    vocabulary: VocabularyKind | None = None
    """`bpe`: byte-level BPE; `spm`: SentencePiece with byte fallback. Default: what the architecture uses."""
    chat_template: bool = True
    tied: bool | None = None
    """The output matrix is the embedding. Default: as in the known models (llama, granite, gemma: yes; others: no)."""
    context_length: int = 2048
    window: int = 32
    """gemma: tokens that a sliding layer sees."""
    window_period: int = 2
    """gemma: every so many layers one sees everything (gemma2 has 2, the real gemma3 models 6)."""
    experts: int = 8
    """Of architectures that have them: experts in a layer."""
    active_experts: int = 2
    """Experts that a token meets."""
    expert_inner: int | None = None
    """Width of an expert; mixtral's is `intermediate`, and the others' unless it is given."""
    dense_layers: tuple[int, ...] = ()
    """Layers without experts; mixtral has none."""
    rotary_dim: int | None = None
    """phi3: dimensions of a head that turn; default: all."""
    rope_base: float | None = None
    """Default: as in the known models."""
    seed: int = 0

    def __post_init__(self) -> None:
        known = get_args(Architecture)
        _require(self.architecture in known, "architecture", self.architecture, f"must be one of {', '.join(known)}")
        positive = (
            "layers",
            "hidden",
            "heads",
            "kv_heads",
            "intermediate",
            "context_length",
            "window",
            "window_period",
            "experts",
            "active_experts",
        )
        for name in positive:
            _require(getattr(self, name) >= 1, name, getattr(self, name), "must be at least 1")
        _require(self.heads % self.kv_heads == 0, "kv_heads", self.kv_heads, f"must divide heads={self.heads}")
        if self.head_dim is None:
            _require(
                self.hidden % self.heads == 0,
                "hidden",
                self.hidden,
                f"not a multiple of heads={self.heads}; give head_dim",
            )
        if self.architecture == "gpt2":
            _require(
                self.kv_heads == self.heads, "kv_heads", self.kv_heads, f"gpt2 has one for each of {self.heads} heads"
            )
            _require(
                self.q_width == self.hidden, "head_dim", self.key_dim, f"{self.heads} heads of gpt2 fill {self.hidden}"
            )
        _require(self.key_dim % 2 == 0, "head_dim", self.key_dim, "must be even (rotary pairs)")
        if self.rotary_dim is not None:
            _require(self.architecture == "phi3", "rotary_dim", self.rotary_dim, "only heads of phi3 turn in part")
            fits = 2 <= self.rotary_dim <= self.key_dim and self.rotary_dim % 2 == 0
            _require(fits, "rotary_dim", self.rotary_dim, f"must be even and in [2, {self.key_dim}]")
        if self.architecture == "gemma2":
            _require(self.window_period == 2, "window_period", self.window_period, "gemma2's is 2")
        _require(self.active_experts <= self.experts, "active_experts", self.active_experts, "there are fewer experts")
        if self.architecture == "mixtral":
            _require(self.expert_inner is None, "expert_inner", self.expert_inner, "mixtral's is `intermediate`")
            _require(not self.dense_layers, "dense_layers", self.dense_layers, "mixtral has experts in every layer")
        widths = {"hidden": self.hidden, "intermediate": self.intermediate, "heads": self.q_width}
        for name, width in {**widths, "expert_inner": self.expert_width}.items():
            for kind in (self.tensor_type, self.table_type):
                fits = width % kind.block_size == 0
                _require(fits, name, width, f"rows of {width} are not whole {kind.name} blocks of {kind.block_size}")

    @property
    def kin(self) -> Kin:
        """The architecture whose conventions this one follows."""
        kin: dict[Architecture, Kin] = {
            "granite": "llama",
            "phi3": "llama",
            "olmo2": "llama",
            "mixtral": "llama",
            "qwen2_moe": "qwen2",
            "qwen3_moe": "qwen2",
            "gemma2": "gemma3",
        }
        return kin.get(self.architecture, self.architecture)  # type: ignore[arg-type]  # the others are their own

    @property
    def has_experts(self) -> bool:
        return self.architecture in ("mixtral", "qwen2_moe", "qwen3_moe")

    @property
    def expert_width(self) -> int:
        """Width between the matrices of an expert."""
        return self.expert_inner if self.expert_inner is not None else self.intermediate

    @property
    def has_qkv_bias(self) -> bool:
        return self.architecture in ("qwen2", "qwen2_moe")

    @property
    def has_qk_norm(self) -> bool:
        return self.architecture in ("gemma3", "olmo2", "qwen3_moe")

    @property
    def has_fused_matrices(self) -> bool:
        """q, k and v are one matrix, and gate and up are one."""
        return self.architecture == "phi3"

    @property
    def has_paired_rows(self) -> bool:
        """GGUF files hold the two halves of a head of q and k row by row."""
        return self.architecture in ("llama", "granite", "mixtral")

    @property
    def key_dim(self) -> int:
        """Width of a head."""
        return self.head_dim if self.head_dim is not None else self.hidden // self.heads

    @property
    def q_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.key_dim

    @property
    def kv_width(self) -> int:
        """Width of all key (or value) heads together."""
        return self.kv_heads * self.key_dim

    @property
    def turning_dim(self) -> int:
        """Dimensions of a head that turn."""
        return self.rotary_dim if self.rotary_dim is not None else self.key_dim

    @property
    def table_type(self) -> TensorType:
        """Of the embedding and the output matrix."""
        return self.embedding_type if self.embedding_type is not None else self.tensor_type

    @property
    def is_tied(self) -> bool:
        return self.tied if self.tied is not None else self.architecture in ("llama", "granite", *_GEMMAS)

    @property
    def vocabulary_kind(self) -> VocabularyKind:
        if self.vocabulary is not None:
            return self.vocabulary
        return "spm" if self.kin == "gemma3" else "bpe"

    @property
    def rope_theta(self) -> float:
        defaults = {"llama": 100_000.0, "qwen2": 1_000_000.0, "gemma3": 1_000_000.0}
        return self.rope_base if self.rope_base is not None else defaults[self.kin]

    @property
    def norm_epsilon(self) -> float:
        return 1e-5 if self.kin in ("llama", "gpt2") else 1e-6

    @property
    def sliding_layers(self) -> tuple[bool, ...]:
        """Per layer: does it see only `window` tokens?"""
        sliding = self.architecture in _GEMMAS
        return tuple(sliding and (i + 1) % self.window_period != 0 for i in range(self.layers))


def _require(ok: bool, name: str, value: object, problem: str) -> None:
    if not ok:
        raise ConfigError(name, value, problem)
