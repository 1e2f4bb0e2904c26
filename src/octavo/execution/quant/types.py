"""Which number formats exist, and how many bytes they take."""

from __future__ import annotations

from enum import Enum
from math import prod


class TensorType(Enum):
    """Number format of a stored tensor: its ggml id, and how many bytes hold how many consecutive weights of a row.

    Names and ids below 1000 are those of the GGUF specification; safetensors files use F32, F16 and BF16 of them. Those
    from 1000 on are Octavo's own, for weights that other quantised checkpoints are loaded into; no file holds them.
    """

    F32 = (0, 1, 4)
    F16 = (1, 1, 2)
    BF16 = (30, 1, 2)
    Q4_0 = (2, 32, 18)
    Q4_1 = (3, 32, 20)
    Q5_0 = (6, 32, 22)
    Q5_1 = (7, 32, 24)
    Q8_0 = (8, 32, 34)
    Q2_K = (10, 256, 84)
    Q3_K = (11, 256, 110)
    Q4_K = (12, 256, 144)
    Q5_K = (13, 256, 176)
    Q6_K = (14, 256, 210)
    IQ4_NL = (20, 32, 18)
    IQ4_XS = (23, 256, 136)
    IQ3_S = (21, 256, 110)
    IQ3_XXS = (18, 256, 98)
    IQ2_S = (22, 256, 82)
    IQ2_XS = (17, 256, 74)
    IQ2_XXS = (16, 256, 66)
    IQ1_M = (29, 256, 56)
    IQ1_S = (19, 256, 50)
    TQ2_0 = (35, 256, 66)
    TQ1_0 = (34, 256, 54)
    MXFP4 = (39, 32, 17)
    Z4 = (1000, 32, 19)
    """Four bits around a zero point: d * (code - zero)."""
    S8 = (1001, 32, 36)
    """Q8_0 with a float32 scale."""
    F8 = (1002, 32, 36)
    """e4m3fn numbers under a float32 scale (below 2 ** 120), computed with as floats."""

    def __init__(self, ggml_id: int, block_size: int, block_bytes: int) -> None:
        self.ggml_id = ggml_id
        self.block_size = block_size
        """Weights per block; the last dimension of a tensor is a multiple of it."""
        self.block_bytes = block_bytes

    @classmethod
    def from_ggml(cls, ggml_id: int) -> TensorType | None:
        """The type with this id in a GGUF file, or None where Octavo does not read it."""
        return _BY_GGML_ID.get(ggml_id)

    @property
    def is_in_files(self) -> bool:
        """Whether files hold this format: Octavo's own exist in memory only."""
        return self.ggml_id < _OWN_IDS

    @property
    def is_float(self) -> bool:
        """Whether products with it take float activations (those with integer codes take int8 ones)."""
        return self in _FLOATS

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.block_bytes / self.block_size

    def num_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of this shape. Raises ValueError where its rows are not whole blocks."""
        row = shape[-1] if shape else 1
        if row % self.block_size:
            raise ValueError(f"a row of {row} weights is not a whole number of {self.name} blocks of {self.block_size}")
        return prod(shape) // self.block_size * self.block_bytes


_OWN_IDS = 1000
_FLOATS = frozenset({TensorType.F32, TensorType.F16, TensorType.BF16, TensorType.F8})
_BY_GGML_ID = {member.ggml_id: member for member in TensorType if member.is_in_files}
