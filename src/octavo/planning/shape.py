"""A decoder as far as its cost depends on it: matrices, caches, norms; no values, no number formats."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from octavo.kv.spec import AttentionSpec, LatentSpec
from octavo.model.program import Program, Split


class Pricing(StrEnum):
    """Where a shape comes from."""

    PROGRAM = "program"
    """The ops that the executors run."""
    FORMULA = "formula"
    """The usual arithmetic over the keys of a config: Octavo does not run this architecture."""


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A linear of one layer, or one per expert: `y = x W (+ bias)`."""

    name: str
    """Block and part: `attn.q`."""
    inputs: int
    outputs: int
    split: Split
    has_bias: bool = False
    num_experts: int = 1
    """Copies with weights of their own."""
    num_active: int = 1
    """Copies that one token meets."""

    @property
    def num_bias_parameters(self) -> int:
        return self.outputs if self.has_bias else 0

    @property
    def num_parameters(self) -> int:
        """Over all copies."""
        return self.num_experts * (self.inputs * self.outputs + self.num_bias_parameters)

    @property
    def num_active_parameters(self) -> int:
        """Of the copies that one token meets."""
        return self.num_active * (self.inputs * self.outputs + self.num_bias_parameters)

    @property
    def block(self) -> str:
        """`attn` or `mlp`."""
        return self.name.partition(".")[0]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One decoder layer."""

    cache: AttentionSpec | LatentSpec
    num_heads: int
    key_dim: int
    """Of one head: length of the products of q and k."""
    value_dim: int
    """Of one head."""
    matrices: tuple[Matrix, ...]
    num_norm_parameters: int

    @property
    def num_parameters(self) -> int:
        return sum(matrix.num_parameters for matrix in self.matrices) + self.num_norm_parameters


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """One decoder."""

    name: str
    architecture: str
    priced_by: Pricing
    vocab_size: int
    hidden_size: int
    max_positions: int
    layers: tuple[Layer, ...]
    num_final_norm_parameters: int
    tied_embeddings: bool
    """The logits use the embedding table."""
    num_position_parameters: int = 0
    """Of tables of learned positions."""
    program: Program | None = None
    """What runs, where Octavo runs it."""
    notes: tuple[str, ...] = field(default=())
    """What is not counted, or only guessed."""

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def num_embedding_parameters(self) -> int:
        """Of one table: `[vocab_size, hidden_size]`."""
        return self.vocab_size * self.hidden_size

    @property
    def num_tables(self) -> int:
        """Embedding table and output matrix, or both in one."""
        return 1 if self.tied_embeddings else 2

    def matrices(self) -> Iterator[Matrix]:
        """Those of all layers."""
        for layer in self.layers:
            yield from layer.matrices
