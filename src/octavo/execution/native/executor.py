"""The native program executor: NumPy arrays in, a view of the logits out, one native call per step."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from octavo import _native
from octavo.errors import OutOfMemoryError
from octavo.execution.kv_layers import attention_specs, check_layers
from octavo.execution.nan import rows_with_nan
from octavo.execution.native.lower import lower_with
from octavo.execution.native.op_infos import layer_of, op_infos
from octavo.execution.native.pack_weights import PackReport, tell_nobody
from octavo.execution.native.recorder import Recorder
from octavo.execution.native.shared_weights import SharedWeights, place_weights
from octavo.execution.native.stages import last_writer
from octavo.execution.protocols import Bytes, Float32, Int32, StepBatch
from octavo.execution.weights import LoadedWeight
from octavo.kv.spec import KVLayout
from octavo.model.cache_layers import with_layers_from
from octavo.model.dataflow import most_positions, rows_source
from octavo.model.program import Embed, Experts, Program


class NativeExecutor:
    """A `ProgramExecutor` on the CPU. Weights stay in their number format, packed for streaming; the step is one call
    that runs every op on the thread pool with the GIL released.

    One caller at a time, but for its blocks: it is the `KVMemory` that stores copy from and to, beside a running step.
    The same inputs give the same bits for every number of threads and every `isa`.
    """

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, LoadedWeight],
        layout: KVLayout,
        *,
        threads: int | None,
        isa: str,
        max_tokens: int,
        max_rows: int,
        max_seqs: int,
        max_positions: int,
        beside: "NativeExecutor | None" = None,
        borrowed: Mapping[str, str] | None = None,
        shared: SharedWeights | None = None,
        report: PackReport = tell_nobody,
    ) -> None:
        """Packs the weights and allocates KV blocks and buffers. `weights` may be let go of afterwards.

        Args:
            threads: compute threads, the caller's included; None: those of `beside`.
            isa: "auto", "amx", "avx512", "avx2" or "portable".
            max_tokens: most tokens of one step; buffers are sized for it.
            max_rows: most logit rows of one call.
            max_seqs: most sequences of one step.
            max_positions: positions run from 0 to max_positions - 1.
            beside: an executor whose threads and matrices this one uses; the two never run at the same time. If both
                have one layout, they share its KV memory, too: its layers are those of `beside`'s program, followed by
                this program's.
            borrowed: matrices that `beside` holds, packed once for both: name here -> name there. `weights` has them
                all the same.
            shared: the file in which this model's packed weights are for all processes of the machine; None: they are
                memory of this one. A borrowed matrix is in neither.
            report: told how far the packing is.

        Raises:
            OutOfMemoryError: weights, KV blocks or buffers do not fit.
            ValueError: an argument out of its range, or an instruction set this CPU lacks.
        """
        self.program = program
        self.layout = layout
        self.max_rows = max_rows
        self.isa = _native.resolve_isa(isa)
        self.pool = _pool(threads, beside)
        """The compute threads, for the sampler to share."""
        host = beside if beside is not None and beside.layout == layout else None
        first_layer = 0 if host is None else len(host.program.cache_layers)
        check_layers(program, layout, first_layer)
        _check_positions(program, max_positions)
        try:
            self._memory: _native.KvMemory | None = _kv_memory(layout) if host is None else host.memory
            self._native: _native.Executor | None = _native.Executor(
                self.pool,
                self.memory,
                isa=self.isa,
                max_tokens=max_tokens,
                max_rows=max_rows,
                max_seqs=max_seqs,
                max_positions=max_positions,
                vocab_size=_num_known_tokens(program),
            )
            placed = with_layers_from(program, first_layer)
            self._record(self._native, placed, weights, max_positions, _lent(beside, borrowed or {}))
            self.shares_weights = place_weights(self._native, self._own_matrices, weights, shared, report)
            """Whether its weights are memory of a file that others map, too."""
            self._native.build()
        except _native.OutOfMemoryError as error:
            raise OutOfMemoryError(str(error)) from None

    def _record(
        self,
        native: _native.Executor,
        program: Program,
        weights: Mapping[str, LoadedWeight],
        max_positions: int,
        lent: Mapping[str, tuple[_native.Executor, int]],
    ) -> None:
        self.lowered = lower_with(program, weights)
        by_section = op_infos(program, self.lowered.sections, {name: w.type.name for name, w in weights.items()})
        self.ops = [info for infos in by_section for info in infos]
        """What `take_op_times` counts: the stages of the native core, in order."""
        self._first_ops = np.cumsum([0, *map(len, by_section)])[:-1]
        recorder = Recorder(native, program, weights, self.lowered, max_positions, lent)
        recorder.record(self.lowered.sections)
        self._buffers, self._matrices = recorder.buffers, recorder.matrices
        self._own_matrices = {name: index for name, index in recorder.matrices.items() if name not in lent}

    def matrix(self, weight: str) -> tuple[_native.Executor, int]:
        """The native executor and the index in it of a matrix, for executors that borrow it."""
        return self._open(), self._matrices[weight]

    def fill(self, role: str, rows: Float32) -> None:
        """See `DraftExecutor.fill`.

        Raises:
            ValueError: more rows than a step may have tokens, or of another width.
        """
        self._open().fill(buffer=self._buffers[self.program.inputs[role]], rows=rows)

    def run(self, batch: StepBatch) -> Float32:
        """See `ProgramExecutor.run`.

        Raises:
            ValueError: the batch exceeds what the executor was built for, or contradicts itself; says which array.
        """
        self._open().run(**_arrays(batch))
        return self.output("logits")

    def expert_loads(self) -> dict[int, list[int]]:
        """Layer -> how many rows each of its experts has met in all steps so far; empty once it is closed. Safe beside
        a running step, whose rows count layer by layer."""
        if self._native is None:
            return {}
        found = zip(self._expert_layers, self._native.expert_loads(), strict=True)
        return {layer: rows for (layer, _), rows in found}

    def expert_totals(self) -> Iterator[tuple[int, int, int, int]]:
        """The same in short: of each layer with experts its number, how many experts it has, how many meetings of a row
        and an expert there were, and how many at the busiest."""
        totals = [] if self._native is None else self._native.expert_totals()
        for (layer, count), (sum_of_all, most) in zip(self._expert_layers, totals, strict=False):
            yield layer, count, sum_of_all, most

    @cached_property
    def _expert_layers(self) -> tuple[tuple[int, int], ...]:
        """Number, and number of experts, of each layer that has any; layers without a number count from 0."""
        found = [(layer_of(op.gate[:1]), len(op.gate)) for op in self.program.ops if isinstance(op, Experts)]
        return tuple((index if layer is None else layer, count) for index, (layer, count) in enumerate(found))

    def time_ops(self, *, on: bool) -> None:
        """From now on all calls keep when each op ran, or none does. Calls that keep nothing pay nothing for it."""
        self._open().time_stages(on)

    def take_op_times(self) -> npt.NDArray[np.int64]:
        """What has been kept since the last call, in the order in which it ran; what ran block of rows by block of rows
        once per block.

        Returns:
            `[runs, 5]`: place in `ops`, rows, begin and end (each begins where the one before it in its step ended) in
            nanoseconds of `_native.steady_ns`, and the nanoseconds of all threads in it together.
        """
        times = self._open().take_times()
        times[:, 1] += self._first_ops[times[:, 0]]
        return times[:, 1:]

    def profile(self, batch: StepBatch) -> list[tuple[str, float]]:
        """Runs the step and says how long each stage took.

        Returns:
            (name, seconds by the clock) of every stage in the order they ran; the name lists its ops, or its weights
            without their layer. A stage that ran block by block occurs once per block.
        """
        self.time_ops(on=True)
        try:
            self.run(batch)
        finally:
            self.time_ops(on=False)
            times = self.take_op_times()
        return [(self.ops[op].name, 1e-9 * (end - begin)) for op, _, begin, end, _ in times.tolist()]

    def logits(self, rows: Int32) -> Float32:
        """See `ProgramExecutor.logits`."""
        self._open().run_rows(rows)
        return self.output("logits")

    def hidden(self, rows: Int32) -> Float32:
        """See `ProgramExecutor.hidden`."""
        self._open().run_rows(rows, last=self._hidden_end)
        return self.output("hidden")

    @cached_property
    def _hidden_end(self) -> tuple[int, int]:
        """The stage that completes the output `hidden`; the native core counts block copies as section 0."""
        section, stage = last_writer(self.lowered.sections, self.program.outputs["hidden"])
        return section + 1, stage

    def broken_rows(self) -> Int32:
        """See `ProgramExecutor.broken_rows`."""
        return rows_with_nan(self._open().view(self._buffers[rows_source(self.program)]))

    def output(self, role: str) -> Float32:
        """See `ProgramExecutor.output`: a view."""
        return self._open().view(self._buffers[self.program.outputs[role]])

    def block_bytes(self, group: int) -> int:
        """See `KVMemory.block_bytes`."""
        return self.memory.block_bytes(group)

    def read_block(self, group: int, block_id: int, out: Bytes) -> None:
        """See `KVMemory.read_block`. The GIL is released."""
        self.memory.read_block(group, block_id, out)

    def write_block(self, group: int, block_id: int, data: Bytes) -> None:
        """See `KVMemory.write_block`. The GIL is released."""
        self.memory.write_block(group, block_id, data)

    @property
    def num_bytes(self) -> dict[str, int]:
        """Bytes held for weights (packed), KV blocks (of all who share them) and scratch (buffers of a step)."""
        native = self._open()
        weights = native.packed_bytes + native.vector_bytes
        return {"weights": weights, "kv": self.memory.num_bytes, "scratch": native.scratch_bytes}

    def close(self) -> None:
        """Releases memory and threads; idempotent. Views handed out keep their memory alive."""
        self._native = self._memory = None

    @property
    def memory(self) -> _native.KvMemory:
        """The blocks, for executors beside this one."""
        if self._memory is None:
            raise ValueError("this executor is closed")
        return self._memory

    def _open(self) -> _native.Executor:
        if self._native is None:
            raise ValueError("this executor is closed")
        return self._native


class _StepArrays(TypedDict):
    """The arguments of a native step."""

    token_ids: Int32
    positions: Int32
    seq_starts: Int32
    context_lens: Int32
    block_tables: Int32
    slot_mapping: Int32
    logit_rows: Int32
    copies: list[tuple[int, int, int]]


def _arrays(batch: StepBatch) -> _StepArrays:
    return {
        "token_ids": batch.token_ids,
        "positions": batch.positions,
        "seq_starts": batch.seq_starts,
        "context_lens": batch.context_lens,
        "block_tables": batch.block_tables,
        "slot_mapping": batch.slot_mapping,
        "logit_rows": batch.logit_rows,
        "copies": [(copy.group, copy.source, copy.target) for copy in batch.block_copies],
    }


def _pool(threads: int | None, beside: NativeExecutor | None) -> _native.ThreadPool:
    if threads is None and beside is not None:
        return beside.pool
    if threads is None or beside is not None:
        raise ValueError(f"threads={threads}, beside={beside}: an executor has threads of its own or another's")
    return _native.ThreadPool(threads)


def _kv_memory(layout: KVLayout) -> _native.KvMemory:
    layers = [
        (group, place, spec.num_kv_heads, spec.head_dim, spec.window)
        for (group, place), spec in zip(layout.placement, attention_specs(layout), strict=True)
    ]
    return _native.KvMemory(
        num_blocks=layout.num_blocks,
        block_size=layout.block_size,
        layers_per_block=layout.layers_per_block,
        kv_dtype=layout.dtype.value,
        layers=layers,
    )


def _check_positions(program: Program, max_positions: int) -> None:
    known = most_positions(program)
    if known is not None and max_positions > known:
        problem = f"program {program.name} looks positions up in a table that holds {known}"
        raise ValueError(f"max_positions={max_positions}: {problem}")


def _num_known_tokens(program: Program) -> int:
    """Ids that may be run: those that every embedding table has."""
    return min(program.weights[op.weight].shape[0] for op in program.ops if isinstance(op, Embed))


def _lent(beside: NativeExecutor | None, borrowed: Mapping[str, str]) -> dict[str, tuple[_native.Executor, int]]:
    if beside is None and borrowed:
        raise ValueError(f"borrowed={dict(borrowed)}: there is no executor beside this one to borrow from")
    return {} if beside is None else {name: beside.matrix(theirs) for name, theirs in borrowed.items()}
