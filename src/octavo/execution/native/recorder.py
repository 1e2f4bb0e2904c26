"""Recording: tells the native executor about buffers, weights and sections, by index instead of by name."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from octavo import _native
from octavo.execution.native.rope_table import rope_table
from octavo.execution.native.stages import (
    LinearStage,
    Lowered,
    Quantize,
    Reorder,
    RowSection,
    RowStage,
    Section,
    Softcap,
    int8_form,
)
from octavo.execution.weights import LoadedWeight
from octavo.model.program import (
    Activate,
    Add,
    Attention,
    CacheWrite,
    Embed,
    EmbedPositions,
    Experts,
    GatedActivation,
    LayerNorm,
    Program,
    RmsNorm,
    Rope,
    Route,
    Scale,
    SelectRows,
    SigmoidScale,
)


class Recorder:
    """Records a lowered program into a native executor, in program order, which is also the weights' order in memory.

    A weight is handed over at its first use and once only, however many ops read it.
    """

    def __init__(
        self,
        native: _native.Executor,
        program: Program,
        weights: Mapping[str, LoadedWeight],
        lowered: Lowered,
        max_positions: int,
        borrowed: Mapping[str, tuple[_native.Executor, int]],
    ) -> None:
        """
        Args:
            lowered: the program as it is recorded.
            borrowed: matrices that a built executor holds, by name: that executor, and their index there.
        """
        self._native = native
        self._program = program
        self._local = lowered.local
        self._orders = lowered.orders
        self._weights = weights
        self._max_positions = max_positions
        self._borrowed = borrowed
        self.matrices: dict[str, int] = {}
        """Native index of each matrix recorded so far."""
        self._vectors: dict[str, int] = {}
        self._turns: dict[int, int] = {}
        self._panels: dict[str, int] = {}
        self.buffers = {
            name: native.add_buffer(rows=buffer.dim == "rows", width=buffer.width, local=name in lowered.local)
            for name, buffer in lowered.buffers.items()
        }
        """Native index of each buffer of the program, and of those that lowering added."""
        self._record_op: dict[type, Callable[[Any], None]] = {
            RowSection: self._section,
            RowStage: self._row_stage,
            LinearStage: self._linear_stage,
            Attention: self._attention,
            Embed: self._embed,
            EmbedPositions: self._embed_positions,
            RmsNorm: self._rms_norm,
            LayerNorm: self._layer_norm,
            Rope: self._rope,
            CacheWrite: self._cache_write,
            GatedActivation: self._gate,
            Activate: self._activate,
            Route: self._route,
            Experts: self._experts,
            SigmoidScale: self._sigmoid_scale,
            Add: self._add,
            Scale: self._scale,
            SelectRows: self._select,
            Softcap: self._softcap,
            Quantize: self._quantize,
            Reorder: self._reorder,
        }

    def record(self, sections: Iterable[Section]) -> None:
        """Records all sections."""
        for section in sections:
            self._record_op[type(section)](section)

    def _section(self, section: RowSection) -> None:
        self._native.open_section(rows=section.dim == "rows")
        for stage in section.stages:
            self._record_op[type(stage)](stage)

    def _row_stage(self, stage: RowStage) -> None:
        self._native.open_rows()
        for op in stage.ops:
            self._record_op[type(op)](op)

    def _linear_stage(self, stage: LinearStage) -> None:
        b = self.buffers
        segments = [(self._matrix(s.weight), self._bias(s.bias), b[s.out], s.add) for s in stage.segments]
        self._native.linear(x=b[stage.x], panels=self._panels.get(stage.x), segments=segments)

    def _attention(self, op: Attention) -> None:
        b = self.buffers
        self._native.attention(
            q=b[op.q], out=b[op.out], layer=op.layer, heads=op.heads, scale=op.scale, softcap=op.softcap or 0.0
        )

    def _embed(self, op: Embed) -> None:
        self._native.embed(matrix=self._matrix(op.weight), scale=op.scale, out=self.buffers[op.out])

    def _embed_positions(self, op: EmbedPositions) -> None:
        self._native.embed_positions(matrix=self._matrix(op.weight), out=self.buffers[op.out])

    def _rms_norm(self, op: RmsNorm) -> None:
        b = self.buffers
        self._native.rms_norm(x=b[op.x], out=b[op.out], weight=self._vector(op.weight), eps=op.eps, groups=op.groups)

    def _layer_norm(self, op: LayerNorm) -> None:
        weight, bias = self._vector(op.weight), self._bias(op.bias)
        self._native.layer_norm(x=self.buffers[op.x], out=self.buffers[op.out], weight=weight, bias=bias, eps=op.eps)

    def _rope(self, op: Rope) -> None:
        rotary_dim = self._program.ropes[op.rope].rotary_dim
        self._native.rope(
            x=self.buffers[op.x],
            heads=op.heads,
            head_dim=op.head_dim,
            rotary_dim=rotary_dim,
            turns=self._turn_table(op.rope),
        )

    def _cache_write(self, op: CacheWrite) -> None:
        self._native.cache_write(k=self.buffers[op.k], v=self.buffers[op.v], layer=op.layer)

    def _gate(self, op: GatedActivation) -> None:
        b = self.buffers
        self._native.gate(activation=op.activation.value, gate=b[op.gate], up=b[op.up], out=b[op.out])

    def _activate(self, op: Activate) -> None:
        b = self.buffers
        self._native.activate(activation=op.activation.value, x=b[op.x], out=b[op.out])

    def _route(self, op: Route) -> None:
        b = self.buffers
        self._native.route(routing=op.routing.value, logits=b[op.logits], top_k=op.top_k, out=b[op.out])

    def _experts(self, op: Experts) -> None:
        b = self.buffers
        experts = [
            (self._matrix(gate), self._matrix(up), self._matrix(down))
            for gate, up, down in zip(op.gate, op.up, op.down, strict=True)
        ]
        self._native.experts(
            x=b[op.x], routes=b[op.routes], out=b[op.out], activation=op.activation.value, experts=experts
        )

    def _sigmoid_scale(self, op: SigmoidScale) -> None:
        b = self.buffers
        self._native.sigmoid_scale(x=b[op.x], gate=b[op.gate], out=b[op.out])

    def _add(self, op: Add) -> None:
        b = self.buffers
        self._native.add(x=b[op.x], y=b[op.y], out=b[op.out])

    def _scale(self, op: Scale) -> None:
        self._native.scale(x=self.buffers[op.x], factor=op.factor, out=self.buffers[op.out])

    def _select(self, op: SelectRows) -> None:
        self._native.select(x=self.buffers[op.x], out=self.buffers[op.out])

    def _softcap(self, op: Softcap) -> None:
        self._native.softcap(x=self.buffers[op.x], cap=op.cap)

    def _reorder(self, op: Reorder) -> None:
        self._native.reorder(x=self.buffers[op.x], order=self._orders[op.order], out=self.buffers[op.out])

    def _quantize(self, op: Quantize) -> None:
        if op.x not in self._panels:
            self._panels[op.x] = self._native.add_panels(self.buffers[op.x], local=int8_form(op.x) in self._local)
        self._native.quantize(panels=self._panels[op.x])

    def _matrix(self, name: str) -> int:
        if name not in self.matrices:
            self.matrices[name] = self._borrow(name) if name in self._borrowed else self._add_matrix(name)
        return self.matrices[name]

    def _add_matrix(self, name: str) -> int:
        weight = self._weights[name]
        n, k = weight.shape
        return self._native.add_matrix(format=weight.type.ggml_id, n=n, k=k)

    def _borrow(self, name: str) -> int:
        owner, matrix = self._borrowed[name]
        return self._native.borrow_matrix(owner=owner, matrix=matrix)

    def _bias(self, name: str | None) -> int | None:
        return None if name is None else self._vector(name)

    def _vector(self, name: str) -> int:
        if name not in self._vectors:
            self._vectors[name] = self._native.add_vector(np.ascontiguousarray(self._weights[name].float32()))
        return self._vectors[name]

    def _turn_table(self, rope: int) -> int:
        if rope not in self._turns:
            table = rope_table(self._program.ropes[rope], self._max_positions)
            self._turns[rope] = self._native.add_vector(table.reshape(-1))
        return self._turns[rope]
