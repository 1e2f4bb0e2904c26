"""What a native executor will hold, from shapes alone: the same sizes, added up by the same native code."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from octavo import _native
from octavo.execution.native.lower import lower_with
from octavo.execution.native.pack_weights import batches
from octavo.execution.native.stages import Quantize, RowSection, RowStage, Section, int8_form
from octavo.execution.weights import LoadedWeight
from octavo.model.cost import num_active
from octavo.model.program import Experts, Program, Rope


@dataclass(frozen=True)
class StepLimits:
    """How large steps may be."""

    threads: int
    max_tokens: int
    max_rows: int
    max_positions: int


@dataclass(frozen=True)
class Footprint:
    """Bytes of an executor without its blocks."""

    weights: int
    """Packed matrices, vectors, rotary tables."""
    step: int
    """Buffers of the largest step, and scratch of the threads."""
    loading: int
    """Converted weights that stand beside packed ones at one time, before there are steps."""


def footprint(
    program: Program, weights: Mapping[str, LoadedWeight], limits: StepLimits, borrowed: Collection[str] = ()
) -> Footprint:
    """Adds up what `NativeExecutor` allocates for a program.

    Args:
        borrowed: matrices that another executor holds.
    """
    lowered = lower_with(program, weights)
    heads = {(layer.kv_heads, layer.head_dim) for layer in program.cache_layers}
    native = _native.Executor(
        _native.ThreadPool(limits.threads),
        _native.KvMemory(
            num_blocks=1,
            block_size=1,
            layers_per_block=1,
            kv_dtype="fp16",
            layers=[(0, 0, kv_heads, head_dim, None) for kv_heads, head_dim in heads],
        ),
        isa="portable",
        max_tokens=limits.max_tokens,
        max_rows=limits.max_rows,
        max_seqs=1,
        max_positions=limits.max_positions,
        vocab_size=1,
    )
    own = {name: weights[name] for name, weight in program.weights.items() if len(weight.shape) == 2}
    matrices = {
        name: native.add_matrix(format=weight.type.ggml_id, n=weight.shape[0], k=weight.shape[1])
        for name, weight in own.items()
        if name not in borrowed
    }
    buffers = {
        name: native.add_buffer(rows=buffer.dim == "rows", width=buffer.width, local=name in lowered.local)
        for name, buffer in lowered.buffers.items()
    }
    for name in _quantised(lowered.sections):
        native.add_panels(buffers[name], local=int8_form(name) in lowered.local)
    for op in program.ops:
        if isinstance(op, Experts):
            inner, width = program.weights[op.gate[0]].shape
            native.add_experts_memory(experts=len(op.gate), top_k=num_active(op, program), width=width, inner=inner)
    loading = max((_converted_bytes(own, batch) for batch in batches(native, matrices)), default=0)
    return Footprint(native.packed_bytes + _vector_bytes(program, limits.max_positions), native.step_bytes, loading)


def _converted_bytes(weights: Mapping[str, LoadedWeight], batch: Collection[str]) -> int:
    found = [weights[name] for name in batch]
    return sum(weight.type.num_bytes(weight.shape) for weight in found if not weight.mapped)


def _quantised(sections: Collection[Section]) -> list[str]:
    """Buffers that have an int8 form."""
    stages = [stage for section in sections if isinstance(section, RowSection) for stage in section.stages]
    ops = [op for stage in stages if isinstance(stage, RowStage) for op in stage.ops]
    return list(dict.fromkeys(op.x for op in ops if isinstance(op, Quantize)))


def _vector_bytes(program: Program, max_positions: int) -> int:
    vectors = sum(weight.shape[0] for weight in program.weights.values() if len(weight.shape) == 1)
    ropes = {op.rope for op in program.ops if isinstance(op, Rope)}
    return 4 * (vectors + max_positions * sum(program.ropes[rope].rotary_dim for rope in ropes))
