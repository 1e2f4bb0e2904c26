"""How an engine's memory is shared out, before any weight is read: what it needs in any case, and blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from octavo.config import EngineConfig
from octavo.decoding.speculation.build import LOOKUP_MEMORY, LookupMemory
from octavo.engine.executors import Loaded, SecondLoaded, footprint_of
from octavo.engine.memory import FREE_MEMORY_SHARE, MemoryPlan, kv_layout, plan_memory
from octavo.engine.memory_ledger import MemoryLedger
from octavo.errors import OutOfMemoryError
from octavo.execution.loader import Checkpoint
from octavo.execution.native.footprint import StepLimits
from octavo.model.program import CacheLayer
from octavo.platform.cpu import CpuMachine, resident_bytes

PROCESS_GROWTH_BYTES = 32 << 20
"""What a process needs besides: its tokenizer, stacks, requests, the heap's gaps (docs/memory.md)."""
INDEX_BYTES_PER_BLOCK = 600
"""Objects of a cached block: its entry in the pool, its names, its place in the prefix index (docs/memory.md)."""


@dataclass(frozen=True)
class Models:
    """What will be run, and the files that it comes from."""

    first: Loaded
    beside: SecondLoaded | None
    checkpoints: Sequence[Checkpoint]

    @property
    def layers_beside(self) -> tuple[CacheLayer, ...]:
        """Cache layers of the second one."""
        return () if self.beside is None else self.beside.program.cache_layers


def share_out_memory(
    config: EngineConfig, models: Models, machine: CpuMachine, limits: StepLimits
) -> tuple[MemoryPlan, MemoryLedger]:
    """Plans all memory of an engine.

    Args:
        config: with its step size and who guesses filled in.
        limits: of the first model's steps; `max_positions` is the longest request that is wanted.

    Raises:
        ConfigError, OutOfMemoryError: as `plan_memory`; also where not even what is needed besides fits.
    """
    held = resident_bytes()
    needs = _needs(config, models, machine, limits, held)
    host_bytes = config.cache.kv_host_memory_bytes or 0
    if needs.left_bytes <= 0:
        raise OutOfMemoryError(f"{needs.arithmetic()}: {_fixes(needs)}")
    share = FREE_MEMORY_SHARE if config.execution.max_memory is None else 1.0
    beside = models.layers_beside
    index_bytes = INDEX_BYTES_PER_BLOCK + config.cache.block_size * _lookups(config).per_token
    try:
        plan = plan_memory(config, models.first.program, needs.left_bytes, beside, share, index_bytes)
    except OutOfMemoryError as error:
        raise OutOfMemoryError(f"{error}. {needs.arithmetic()}: {_fixes(needs)}") from None
    num_blocks = plan.layout.num_blocks - 1
    ledger = replace(
        _needs(config, models, machine, replace(limits, max_positions=plan.max_model_len), held),
        kv_bytes=num_blocks * plan.layout.bytes_per_block,
        kv_index_bytes=num_blocks * index_bytes,
        kv_host_bytes=host_bytes,
    )
    return plan, ledger


def _needs(config: EngineConfig, models: Models, machine: CpuMachine, limits: StepLimits, held: int) -> MemoryLedger:
    """All but blocks.

    Args:
        held: bytes that the process has already.
    """
    obtainable = machine.available_memory_bytes + held
    wanted = config.execution.max_memory_bytes(machine.total_memory_bytes)
    first = footprint_of(config.execution.executor, models.first, limits)
    beside = replace(limits, max_rows=config.scheduler.max_num_seqs)
    second = None if models.beside is None else footprint_of(config.execution.executor, models.beside, beside)
    return MemoryLedger(
        process_bytes=held + PROCESS_GROWTH_BYTES,
        weight_bytes=first.weights,
        draft_weight_bytes=0 if second is None else second.weights,
        step_bytes=first.step,
        draft_step_bytes=0 if second is None else second.step,
        batch_bytes=_batch_bytes(config, models, limits.max_positions),
        loading_bytes=max(first.loading, 0 if second is None else second.loading),
        lookup_bytes=_lookups(config).earlier,
        file_bytes=sum(info.nbytes for checkpoint in models.checkpoints for info in checkpoint.tensors.values()),
        limit_bytes=obtainable if wanted is None else min(wanted, obtainable),
        limit="max_memory" if wanted is not None and wanted <= obtainable else "machine",
    )


def _batch_bytes(config: EngineConfig, models: Models, max_positions: int) -> int:
    """Known tokens and block tables of all sequences, four bytes an entry."""
    num_groups = len(kv_layout(config, models.first.program, models.layers_beside, num_blocks=2).groups)
    blocks = -(-max_positions // config.cache.block_size)
    return 4 * config.scheduler.max_num_seqs * (max_positions + 1 + num_groups * blocks)


def _lookups(config: EngineConfig) -> LookupMemory:
    return LOOKUP_MEMORY.get(config.speculation.speculation, LookupMemory())


def _fixes(needs: MemoryLedger) -> str:
    """What makes it fit, the largest part first."""
    fixes = {
        "weights": "take a smaller model or quantisation",
        "step buffers": "lower --max-num-batched-tokens and --max-num-seqs",
        "sequences": "lower --max-num-seqs or --max-model-len",
        "earlier answers": "give --speculation ngram or off",
    }
    sizes = dict(needs.parts())
    listed = [fixes[name] for name in sorted(fixes, key=lambda name: -sizes[name]) if sizes[name]]
    more = "raise --max-memory" if needs.limit == "max_memory" else "free memory"
    return ", or ".join(
        [f"{more}, lower --max-model-len, or give --kv-cache-dtype int8 for blocks of half the size", *listed]
    )
