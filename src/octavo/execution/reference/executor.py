"""Runs programs in NumPy."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import numpy as np

from octavo.execution.kv_layers import check_layers
from octavo.execution.nan import rows_with_nan
from octavo.execution.protocols import Bytes, Float32, Int32, StepBatch
from octavo.execution.reference.ops import OPS, DenseWeight, Machine
from octavo.execution.reference.paged_kv import PagedKV
from octavo.execution.weights import LoadedWeight
from octavo.kv.spec import KVLayout
from octavo.model.cache_layers import with_layers_from
from octavo.model.dataflow import row_ops, row_ops_of, rows_source
from octavo.model.program import Op, Program


class Arithmetic(StrEnum):
    """What the reference imitates."""

    FLOAT32 = "float32"
    """Exact weights, float32 activations: the values a model defines."""
    QUANTISED = "quantised"
    """Activations rounded to 8 bits before every weight of an integer format, as the native kernels do."""


class ReferenceExecutor:
    """A `ProgramExecutor` for checking others: an oracle of values, not of bits.

    Weights are held dequantised (4 bytes each); K and V are held in the layout's number format in either arithmetic, so
    an exact run wants a layout of FP32.
    """

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, LoadedWeight],
        layout: KVLayout,
        *,
        arithmetic: Arithmetic = Arithmetic.FLOAT32,
        max_rows: int = 256,
        beside: "ReferenceExecutor | None" = None,
    ) -> None:
        """
        Args:
            beside: an executor whose KV memory this one uses, too. The layers of the layout are then those of
                `beside`'s program, followed by this program's.
        """
        first_layer = 0 if beside is None else len(beside._program.cache_layers)
        check_layers(program, layout, first_layer)
        self.layout = layout
        self.max_rows = max_rows
        self._program: Program = with_layers_from(program, first_layer)
        self._row_ops = row_ops(program)
        self._kv: PagedKV | None = PagedKV(layout) if beside is None else beside._open()
        self._weights = {name: _dense(weights[name], arithmetic) for name in program.weights}
        self._machine: Machine | None = None
        self._inputs: dict[str, Float32] = {}
        """Buffers that no op writes."""

    def fill(self, role: str, rows: Float32) -> None:
        """See `DraftExecutor.fill`."""
        self._inputs[self._program.inputs[role]] = rows.copy()

    def output(self, role: str) -> Float32:
        """See `ProgramExecutor.output`."""
        return self._last_machine().buffers[self._program.outputs[role]]

    def run(self, batch: StepBatch) -> Float32:
        """Runs the step; see `ProgramExecutor.run`."""
        kv = self._open()
        kv.copy_blocks(batch.block_copies)
        self._machine = Machine(
            weights=self._weights,
            ropes=self._program.ropes,
            layout=self.layout,
            kv=kv,
            batch=batch,
            rows=self._checked_rows(batch.logit_rows),
            buffers={name: rows[: len(batch.token_ids)] for name, rows in self._inputs.items()},
        )
        return self._execute(self._machine, self._program.ops, "logits")

    def logits(self, rows: Int32) -> Float32:
        """Runs the row ops again for other rows of the last batch; see `ProgramExecutor.logits`."""
        return self._execute_rows(rows, self._row_ops, "logits")

    def hidden(self, rows: Int32) -> Float32:
        """See `ProgramExecutor.hidden`."""
        return self._execute_rows(rows, row_ops_of(self._program, "hidden"), "hidden")

    def broken_rows(self) -> Int32:
        """See `ProgramExecutor.broken_rows`."""
        return rows_with_nan(self._last_machine().buffers[rows_source(self._program)])

    def block_bytes(self, group: int) -> int:
        """See `KVMemory.block_bytes`."""
        return self._open().block_bytes(group)

    def read_block(self, group: int, block_id: int, out: Bytes) -> None:
        """See `KVMemory.read_block`."""
        self._open().read_block(group, block_id, out)

    def write_block(self, group: int, block_id: int, data: Bytes) -> None:
        """See `KVMemory.write_block`."""
        self._open().write_block(group, block_id, data)

    def _open(self) -> PagedKV:
        if self._kv is None:
            raise ValueError("this executor is closed")
        return self._kv

    def close(self) -> None:
        """Drops weights and KV memory; idempotent."""
        self._kv = None
        self._weights = {}
        self._machine = None

    def _last_machine(self) -> Machine:
        if self._machine is None:
            raise ValueError("no batch was run whose rows could be asked for")
        return self._machine

    def _execute_rows(self, rows: Int32, ops: Iterable[Op], role: str) -> Float32:
        machine = self._last_machine()
        machine.rows = self._checked_rows(rows)
        return self._execute(machine, ops, role)

    def _execute(self, machine: Machine, ops: Iterable[Op], role: str) -> Float32:
        for op in ops:
            OPS[type(op)](machine, op)
        return machine.buffers[self._program.outputs[role]]

    def _checked_rows(self, rows: Int32) -> Int32:
        if len(rows) > self.max_rows:
            raise ValueError(f"{len(rows)} logit rows in one call, at most {self.max_rows} fit")
        return rows


def _dense(weight: LoadedWeight, arithmetic: Arithmetic) -> DenseWeight:
    rounds = arithmetic is Arithmetic.QUANTISED and not weight.type.is_float
    return DenseWeight(np.ascontiguousarray(weight.float32()), rounds, weight.input_order)
