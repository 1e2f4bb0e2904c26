"""Where a program's weights stand in a checkpoint: plain data, read by the loader."""

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.model.program import Program


@dataclass(frozen=True)
class UnpermuteHeads:
    """The file's rows interleave the rotary pairs of each head; the program wants rotate-half order.

    Per head, output row `i` (first half) and `i + rotary_dim / 2` (second half) of the rotary part stand at file rows
    `2 i` and `2 i + 1`; rows past rotary_dim stay. GGUF files of the llama architecture are written so.
    """

    num_heads: int
    head_dim: int
    rotary_dim: int

    def row_order(self) -> list[int]:
        """Output row -> file row, `[num_heads * head_dim]`."""
        half = self.rotary_dim // 2
        head = [2 * i for i in range(half)] + [2 * i + 1 for i in range(half)] + list(range(2 * half, self.head_dim))
        return [base + row for base in range(0, self.num_heads * self.head_dim, self.head_dim) for row in head]


@dataclass(frozen=True)
class AddOne:
    """The file holds w - 1 (Hugging Face files of the gemma models store norm weights so)."""


@dataclass(frozen=True)
class Columns:
    """Inputs `start .. stop - 1` of a matrix whose rows have `width` inputs in the file.

    `[a | b] @ W.T` is `a @ W[:, :len(a)].T + b @ W[:, len(a):].T`: no program needs an op that puts rows side by side.
    """

    start: int
    stop: int
    width: int


@dataclass(frozen=True)
class Rows:
    """Outputs `start .. stop - 1` of a matrix or vector that has `height` of them in the file: q, k and v, or gate and
    up, one below the other."""

    start: int
    stop: int
    height: int


@dataclass(frozen=True)
class Transposed:
    """The file holds the matrix as `[in, out]` (Hugging Face's Conv1D). `rows`: those of the turned matrix to take.

    Only float formats can be turned: blocks of the others run along the inputs.
    """

    rows: Rows | None = None


@dataclass(frozen=True)
class Stacked:
    """Matrix `index` of `count` that the file holds as one tensor `[count, out, in]`. `rows`: those of it to take."""

    index: int
    count: int
    rows: Rows | None = None


@dataclass(frozen=True)
class OnlyRow:
    """The file holds the matrix, which has one row, as a vector."""


Transform = UnpermuteHeads | AddOne | Columns | Rows | Transposed | Stacked | OnlyRow | None


@dataclass(frozen=True)
class WeightSource:
    """The tensor of a checkpoint that holds one weight of the program."""

    name: str
    transform: Transform = None

    def stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The tensor's shape in the file, for a weight of this shape."""
        match self.transform:
            case Columns(width=width):
                return (shape[0], width)
            case Rows(height=height):
                return (height, *shape[1:])
            case Transposed(rows=rows):
                return (*shape[1:], shape[0] if rows is None else rows.height)
            case Stacked(count=count, rows=rows):
                return (count, shape[0] if rows is None else rows.height, *shape[1:])
            case OnlyRow():
                return shape[1:]
        return shape


@dataclass(frozen=True)
class ModelDefinition:
    """A program and where its weights come from."""

    program: Program
    sources: Mapping[str, WeightSource]
    """One for every weight of the program."""
    ignored_tensors: tuple[str, ...] = ()
    """Shell-style patterns of tensors that may stand in the checkpoint unused, because the program's settings already
    hold what they say (rotary tables, a copy of tied embeddings)."""
