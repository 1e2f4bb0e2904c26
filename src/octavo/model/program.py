"""The program: a flat list of typed ops over named buffers. Plain data; it knows no device, rank or number format.

Buffers are float32 matrices `[dim, width]` whose first dimension is symbolic: `tokens` (all tokens of the step) or
`rows` (the tokens whose logits are wanted). Step inputs (token ids, positions, block tables, which rows) are not
buffers: ops that need them say so. Rows that another program has computed are (`Program.inputs`). Models emit plain
ops; fusing, sharding and cutting are passes over the list.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

Dim = Literal["tokens", "rows"]


class Activation(StrEnum):
    """`silu(x) = x / (1 + exp(-x))`; `gelu(x) = x * Phi(x)`, Phi the normal distribution; `gelu_tanh` is its tanh form;
    `relu(x) = max(0, x)`."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"
    GELU = "gelu"
    RELU = "relu"


class Routing(StrEnum):
    """How the logits of the chosen experts become weights. Another rule is a member here and a function per executor.

    With l the logits of a row, c the chosen ones in their order, e(i) = exp(l[i] - l[c[0]]):
    """

    SHARE_OF_ALL = "share_of_all"
    """e(c[j]) / sum of e over all experts, by ascending id: softmax, then top-k."""
    SHARE_OF_CHOSEN = "share_of_chosen"
    """e(c[j]) / sum of e over the chosen ones, in their order: top-k, then softmax; the weights add up to 1."""


class Split(StrEnum):
    """How a linear may be cut across ranks: by output (column), by input (row), or not at all."""

    COLUMN = "column"
    ROW = "row"
    REPLICATED = "replicated"


@dataclass(frozen=True)
class Buffer:
    name: str
    dim: Dim
    width: int


@dataclass(frozen=True)
class Weight:
    """A parameter by its canonical name (`layers.3.attn.q`). `shape` is `[out, in]` for matrices, `[width]` for
    vectors; the element format is the checkpoint's business."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class CacheLayer:
    """KV state of one attention layer: shapes per token K and V `[kv_heads, head_dim]`."""

    kv_heads: int
    head_dim: int
    window: int | None = None
    """Sliding window in tokens, the token itself included; None: full attention."""


@dataclass(frozen=True)
class RopeSpec:
    """Rotary embedding: pair (i, i + rotary_dim/2) of each head turns by `position * inv_freq[i]` (rotate-half).

    `magnitude` multiplies cos and sin (YaRN's attention factor; 1 otherwise). Dims past rotary_dim pass unchanged.
    """

    rotary_dim: int
    inv_freq: tuple[float, ...]
    magnitude: float = 1.0


# --- ops: each field that names a buffer or weight holds its name -----------------------------------------------


@dataclass(frozen=True)
class Embed:
    """out[t] = table[token_ids[t]] * scale."""

    out: str
    weight: str
    scale: float = 1.0


@dataclass(frozen=True)
class EmbedPositions:
    """out[t] = table[positions[t]]: learned positions. The table bounds the context."""

    out: str
    weight: str


@dataclass(frozen=True)
class Linear:
    """out = x @ weight.T (+ bias)."""

    x: str
    out: str
    weight: str
    bias: str | None = None
    split: Split = Split.REPLICATED


@dataclass(frozen=True)
class RmsNorm:
    """Per group g of `width / groups` columns: out = x / sqrt(mean(x^2) + eps) * weight. groups = heads for q/k norms
    (the weight, `[width / groups]`, is shared by all groups). x and out may be the same buffer."""

    x: str
    out: str
    weight: str
    eps: float
    groups: int = 1


@dataclass(frozen=True)
class LayerNorm:
    """out = (x - mean(x)) / sqrt(variance(x) + eps) * weight (+ bias). x and out may be the same buffer."""

    x: str
    out: str
    weight: str
    eps: float
    bias: str | None = None


@dataclass(frozen=True)
class Rope:
    """Rotates every head of x in place by the token's position. `rope` indexes `Program.ropes`."""

    x: str
    heads: int
    head_dim: int
    rope: int


@dataclass(frozen=True)
class CacheWrite:
    """Stores k and v of every token of the step at its slot of cache layer `layer`, before any row reads."""

    k: str
    v: str
    layer: int


@dataclass(frozen=True)
class Attention:
    """Causal attention of q `[tokens, heads * head_dim]` over cache layer `layer`.

    Head h reads KV head `h // (heads / kv_heads)`. Scores are `scale * q.k`, then `softcap * tanh(s / softcap)` if
    given; position p sees p - window + 1 .. p under the layer's window, else 0 .. p.
    """

    q: str
    out: str
    layer: int
    heads: int
    scale: float
    softcap: float | None = None


@dataclass(frozen=True)
class GatedActivation:
    """out = activation(gate) * up."""

    gate: str
    up: str
    out: str
    activation: Activation


@dataclass(frozen=True)
class Activate:
    """out = activation(x). x and out may be the same buffer."""

    x: str
    out: str
    activation: Activation


@dataclass(frozen=True)
class Route:
    """Chooses `top_k` experts for each row by its router logits `[experts]`: the largest ones, ties to the lower id.

    out `[2 * top_k]` holds the ids in descending order of logits (as floats, which hold them exactly), then the
    weights. A logit that is NaN counts as the largest, so that it makes the row NaN and not another row.
    """

    logits: str
    out: str
    top_k: int
    routing: Routing


@dataclass(frozen=True)
class Experts:
    """Mixture of experts: with i_j and w_j what `routes` (see Route) holds for a row,

    y_j = down[i_j] @ (activation(gate[i_j] @ x) * (up[i_j] @ x)), and out = w_0 y_0 + w_1 y_1 + ..., added in this
    order with one rounding each. No expert has a capacity: a row's result does not depend on other rows.
    """

    x: str
    routes: str
    out: str
    gate: tuple[str, ...]
    """A weight `[inner, width]` per expert."""
    up: tuple[str, ...]
    down: tuple[str, ...]
    """A weight `[width, inner]` per expert."""
    activation: Activation


@dataclass(frozen=True)
class SigmoidScale:
    """out = x * sigmoid(gate[0]): gate has one column. out may be x."""

    x: str
    gate: str
    out: str


@dataclass(frozen=True)
class Add:
    """out = x + y. out may be x or y."""

    x: str
    y: str
    out: str


@dataclass(frozen=True)
class Scale:
    """out = x * factor. out may be x."""

    x: str
    out: str
    factor: float


@dataclass(frozen=True)
class SelectRows:
    """out[r] = x[logit_rows[r]]: from `tokens` to `rows`."""

    x: str
    out: str


@dataclass(frozen=True)
class Logits:
    """out = x @ weight.T over `rows`, then `softcap * tanh(out / softcap)` if given."""

    x: str
    out: str
    weight: str
    softcap: float | None = None


Op = (
    Embed
    | EmbedPositions
    | Linear
    | RmsNorm
    | LayerNorm
    | Rope
    | CacheWrite
    | Attention
    | GatedActivation
    | Activate
    | Route
    | Experts
    | SigmoidScale
    | Add
    | Scale
    | SelectRows
    | Logits
)


@dataclass(frozen=True)
class Program:
    """A model as data. `outputs` names the buffers a caller may read by role (`logits`, `hidden`)."""

    name: str
    ops: tuple[Op, ...]
    buffers: dict[str, Buffer]
    weights: dict[str, Weight]
    cache_layers: tuple[CacheLayer, ...]
    ropes: tuple[RopeSpec, ...]
    outputs: dict[str, str]
    vocab_size: int
    """Rows of the logits; the tokenizer may know fewer ids."""
    max_positions: int
    """Longest context the model was trained for."""
    notes: dict[str, str] = field(default_factory=dict)
    """For people: family, sizes; printed by describe()."""
    inputs: dict[str, str] = field(default_factory=dict)
    """Buffers over `tokens` that no op writes, by role: whoever runs the program fills them before each step."""
