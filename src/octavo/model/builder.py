"""Building programs: one method per op, checked as it is called, so that a family file reads like arithmetic.

Buffers are named by their role and used again by every layer (`q` is one buffer, not one per layer): the scratch memory
of a step is then the sum of the buffers, and no reader needs a liveness analysis.
"""

from collections.abc import Mapping

from octavo.model.program import (
    Activate,
    Activation,
    Add,
    Attention,
    Buffer,
    CacheLayer,
    CacheWrite,
    Dim,
    Embed,
    EmbedPositions,
    Experts,
    GatedActivation,
    LayerNorm,
    Linear,
    Logits,
    Op,
    Program,
    RmsNorm,
    Rope,
    RopeSpec,
    Route,
    Routing,
    Scale,
    SelectRows,
    SigmoidScale,
    Split,
    Weight,
)


class ProgramBuilder:
    """Collects ops, buffers and weights of one program.

    Methods take and return buffers; `out` names the buffer written. Shapes that do not fit raise ValueError: they are
    mistakes of the family, not of a model file.
    """

    def __init__(self, name: str, ropes: tuple[RopeSpec, ...]) -> None:
        self._name = name
        self._ropes = ropes
        self._ops: list[Op] = []
        self._buffers: dict[str, Buffer] = {}
        self._weights: dict[str, Weight] = {}
        self._cache_layers: list[CacheLayer] = []
        self._inputs: dict[str, str] = {}

    def given(self, role: str, width: int) -> Buffer:
        """Rows of every token of the step that whoever runs the program brings; `role` names their buffer, too."""
        self._inputs[role] = role
        return self._buffer(role, "tokens", width)

    def embed(self, weight: str, vocab_size: int, width: int, *, scale: float = 1.0, out: str) -> Buffer:
        """Rows of the embedding table for the step's token ids, times `scale`."""
        self._weight(weight, vocab_size, width)
        self._ops.append(Embed(out=out, weight=weight, scale=scale))
        return self._buffer(out, "tokens", width)

    def embed_positions(self, weight: str, positions: int, width: int, *, out: str) -> Buffer:
        """Rows of a learned table for the positions of the step's tokens; it has as many as the context may have."""
        self._weight(weight, positions, width)
        self._ops.append(EmbedPositions(out=out, weight=weight))
        return self._buffer(out, "tokens", width)

    def linear(self, x: Buffer, weight: str, width: int, *, split: Split, bias: bool = False, out: str) -> Buffer:
        """`x @ weight.T`, plus the vector `weight.bias` if `bias`."""
        self._distinct(out, x)
        self._weight(weight, width, x.width)
        if bias:
            self._weight(f"{weight}.bias", width)
        self._ops.append(Linear(x=x.name, out=out, weight=weight, bias=f"{weight}.bias" if bias else None, split=split))
        return self._buffer(out, x.dim, width)

    def rms_norm(self, x: Buffer, weight: str, eps: float, *, groups: int = 1, out: str) -> Buffer:
        """RMS norm over each of `groups` equal parts of a row."""
        self._require(x.width % groups == 0, f"{x} does not divide into {groups} groups")
        self._weight(weight, x.width // groups)
        self._ops.append(RmsNorm(x=x.name, out=out, weight=weight, eps=eps, groups=groups))
        return self._buffer(out, x.dim, x.width)

    def layer_norm(self, x: Buffer, weight: str, eps: float, *, bias: bool = True, out: str) -> Buffer:
        """Layer norm of each row (Ba et al. 2016); plus the vector `weight.bias` if `bias`."""
        self._weight(weight, x.width)
        if bias:
            self._weight(f"{weight}.bias", x.width)
        added = f"{weight}.bias" if bias else None
        self._ops.append(LayerNorm(x=x.name, out=out, weight=weight, eps=eps, bias=added))
        return self._buffer(out, x.dim, x.width)

    def rope(self, x: Buffer, heads: int, rope: int) -> Buffer:
        """Rotates every head of x in place."""
        head_dim = x.width // heads
        self._require(x.width == heads * head_dim, f"{x} does not divide into {heads} heads")
        self._require(self._ropes[rope].rotary_dim <= head_dim, f"rope {rope} is wider than a head of {x}")
        self._ops.append(Rope(x=x.name, heads=heads, head_dim=head_dim, rope=rope))
        return x

    def cache_layer(self, kv_heads: int, head_dim: int, window: int | None) -> int:
        """Declares the KV state of one attention layer and returns its index."""
        self._cache_layers.append(CacheLayer(kv_heads=kv_heads, head_dim=head_dim, window=window))
        return len(self._cache_layers) - 1

    def cache_write(self, k: Buffer, v: Buffer, layer: int) -> None:
        """Stores k and v of the step's tokens in a cache layer."""
        cache = self._cache_layers[layer]
        width = cache.kv_heads * cache.head_dim
        self._require(k.width == v.width == width, f"{k} and {v} must be as wide as a token of {cache}")
        self._ops.append(CacheWrite(k=k.name, v=v.name, layer=layer))

    def attention(
        self, q: Buffer, layer: int, heads: int, *, scale: float, softcap: float | None = None, out: str
    ) -> Buffer:
        """Causal attention of q over a cache layer."""
        self._distinct(out, q)
        cache = self._cache_layers[layer]
        self._require(q.width == heads * cache.head_dim, f"{q} is not {heads} heads of {cache.head_dim}")
        self._require(heads % cache.kv_heads == 0, f"{heads} heads do not share {cache.kv_heads} KV heads evenly")
        self._ops.append(Attention(q=q.name, out=out, layer=layer, heads=heads, scale=scale, softcap=softcap))
        return self._buffer(out, q.dim, q.width)

    def gated(self, gate: Buffer, up: Buffer, activation: Activation, *, out: str) -> Buffer:
        """`activation(gate) * up`."""
        self._require((gate.dim, gate.width) == (up.dim, up.width), f"{gate} and {up} must have one shape")
        self._ops.append(GatedActivation(gate=gate.name, up=up.name, out=out, activation=activation))
        return self._buffer(out, gate.dim, gate.width)

    def activate(self, x: Buffer, activation: Activation, *, out: str) -> Buffer:
        """`activation(x)`."""
        self._ops.append(Activate(x=x.name, out=out, activation=activation))
        return self._buffer(out, x.dim, x.width)

    def route(self, logits: Buffer, top_k: int, routing: Routing, *, out: str) -> Buffer:
        """Ids and weights of the `top_k` experts with the largest logits."""
        self._require(0 < top_k <= logits.width, f"{logits} does not offer {top_k} experts")
        self._ops.append(Route(logits=logits.name, out=out, top_k=top_k, routing=routing))
        return self._buffer(out, logits.dim, 2 * top_k)

    def experts(
        self, x: Buffer, routes: Buffer, prefix: str, count: int, inner: int, activation: Activation, *, out: str
    ) -> Buffer:
        """The weighted sum of gated MLPs of `inner` columns. The weights of expert e are `prefix.e.gate`, `prefix.e.up`
        and `prefix.e.down`."""
        self._distinct(out, x)
        self._require(x.dim == routes.dim == "tokens", f"{x} and {routes} must hold tokens")
        named = {part: tuple(f"{prefix}.{e}.{part}" for e in range(count)) for part in ("gate", "up", "down")}
        for part, names in named.items():
            for name in names:
                self._weight(name, *((x.width, inner) if part == "down" else (inner, x.width)))
        self._ops.append(Experts(x=x.name, routes=routes.name, out=out, activation=activation, **named))
        return self._buffer(out, x.dim, x.width)

    def sigmoid_scale(self, x: Buffer, gate: Buffer, *, out: str) -> Buffer:
        """`x * sigmoid(gate)`, one factor per row."""
        self._require((gate.dim, gate.width) == (x.dim, 1), f"{gate} must hold one value for each row of {x}")
        self._ops.append(SigmoidScale(x=x.name, gate=gate.name, out=out))
        return self._buffer(out, x.dim, x.width)

    def add(self, x: Buffer, y: Buffer, *, out: str) -> Buffer:
        """`x + y`."""
        self._require((x.dim, x.width) == (y.dim, y.width), f"{x} and {y} must have one shape")
        self._ops.append(Add(x=x.name, y=y.name, out=out))
        return self._buffer(out, x.dim, x.width)

    def scale(self, x: Buffer, factor: float, *, out: str) -> Buffer:
        """`x * factor`."""
        self._ops.append(Scale(x=x.name, out=out, factor=factor))
        return self._buffer(out, x.dim, x.width)

    def select_rows(self, x: Buffer, *, out: str) -> Buffer:
        """The rows of x whose logits are wanted."""
        self._require(x.dim == "tokens", f"{x} holds rows already")
        self._ops.append(SelectRows(x=x.name, out=out))
        return self._buffer(out, "rows", x.width)

    def logits(self, x: Buffer, weight: str, vocab_size: int, *, softcap: float | None = None, out: str) -> Buffer:
        """Scores of every vocabulary entry for each row of x."""
        self._require(x.dim == "rows", f"{x} must hold rows: select them first")
        self._weight(weight, vocab_size, x.width)
        self._ops.append(Logits(x=x.name, out=out, weight=weight, softcap=softcap))
        return self._buffer(out, "rows", vocab_size)

    def build(self, outputs: Mapping[str, Buffer], max_positions: int, notes: Mapping[str, str]) -> Program:
        """The finished program. `outputs` must name `logits`."""
        self._require("logits" in outputs, f"outputs {sorted(outputs)} lack logits")
        return Program(
            name=self._name,
            ops=tuple(self._ops),
            buffers=dict(self._buffers),
            weights=dict(self._weights),
            cache_layers=tuple(self._cache_layers),
            ropes=self._ropes,
            outputs={role: buffer.name for role, buffer in outputs.items()},
            vocab_size=outputs["logits"].width,
            max_positions=max_positions,
            notes=dict(notes),
            inputs=dict(self._inputs),
        )

    def _buffer(self, name: str, dim: Dim, width: int) -> Buffer:
        buffer = self._buffers.setdefault(name, Buffer(name=name, dim=dim, width=width))
        self._require((buffer.dim, buffer.width) == (dim, width), f"{buffer} cannot also hold [{dim}, {width}]")
        return buffer

    def _weight(self, name: str, *shape: int) -> None:
        weight = self._weights.setdefault(name, Weight(name=name, shape=shape))
        self._require(weight.shape == shape, f"{weight} cannot also have shape {shape}")

    def _distinct(self, out: str, x: Buffer) -> None:
        self._require(out != x.name, f"buffer {out} cannot be both read and written by this op")

    def _require(self, ok: bool, problem: str) -> None:
        if not ok:
            raise ValueError(f"program {self._name}, op {len(self._ops)}: {problem}")
