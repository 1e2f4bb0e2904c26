"""Pooling parameters: how one vector is made of a prompt."""

from typing import Literal, get_args

import msgspec

from octavo.errors import InvalidRequestError
from octavo.request.params import SamplingParams

Pooling = Literal["last", "mean"]
"""Which positions of the prompt count. Not the first one: in a decoder it has seen nothing but itself."""
KINDS: tuple[str, ...] = get_args(Pooling)
MAX_DIMENSIONS = 2**20
NOTHING_SAMPLED = SamplingParams(max_tokens=1, temperature=0, seed=0, detokenize=False)
"""Sampling parameters of a pooled request: it yields one thing, its vector, where others yield a token."""


class PoolingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the vector of a prompt is made: the mean of the final hidden states (after the last norm) of the positions
    that count, cut to `dimensions`, then scaled to length 1.

    Construction validates: a value that cannot be honoured raises :class:`InvalidRequestError` naming the field.
    """

    pooling: Pooling = "last"
    """`last`: the last position, which has seen all the others. `mean`: all positions. Such requests take no prefix
    hits: the hidden states of cached tokens are not kept, and all of them count."""
    normalize: bool = True
    """Scale the vector to Euclidean length 1, after the cut. A vector of zeros stays as it is."""
    dimensions: int | None = None
    """Keep the first so many numbers (Kusupati et al. 2022, "Matryoshka Representation Learning"; sensible for models
    trained so). None: all; more than the model has are refused when that is known."""

    def __post_init__(self) -> None:
        _require(self.pooling in KINDS, "pooling", self.pooling, f"must be one of {KINDS}")
        _require(isinstance(self.normalize, bool), "normalize", self.normalize, "must be true or false")
        is_size = type(self.dimensions) is int and 1 <= self.dimensions <= MAX_DIMENSIONS
        problem = f"must be an integer in [1, {MAX_DIMENSIONS}]"
        _require(self.dimensions is None or is_size, "dimensions", self.dimensions, problem)

    @property
    def needs_every_position(self) -> bool:
        """Whether all tokens have to be run for this request, also those that are in the prefix cache."""
        return self.pooling == "mean"


def _require(ok: bool, field: str, value: object, problem: str) -> None:
    if not ok:
        raise InvalidRequestError(field, value, problem)
