"""How many KV blocks there are and how long a request may be: the arithmetic at start, in the open."""

from bisect import bisect_right
from dataclasses import dataclass

from octavo.config import EngineConfig
from octavo.errors import ConfigError, OutOfMemoryError
from octavo.kv.spec import AttentionSpec, KVLayout, lay_out
from octavo.model.program import CacheLayer, Program

FREE_MEMORY_SHARE = 0.5
"""Share of the free memory that KV blocks may take unless told otherwise: the rest is for page cache and neighbours."""

MAX_SLOTS = 2**30
"""Most places for tokens, over all blocks: they are numbered in 32 bits."""


@dataclass(frozen=True)
class MemoryPlan:
    """The KV layout and the longest request it serves."""

    layout: KVLayout
    max_model_len: int
    beside_bytes_per_token: int = 0
    """Of a second model's layers."""

    @property
    def num_full_length_requests(self) -> int:
        """Requests of `max_model_len` tokens that can decode at one time, with nothing shared."""
        return self._num_usable // self._full_length_blocks

    @property
    def num_tokens(self) -> int:
        """Tokens that fit in requests of `max_model_len` tokens that decode. Layers with a window hold of each request
        only what the window needs, so shorter requests fit fewer tokens."""
        return self._num_usable * self.max_model_len // self._full_length_blocks

    @property
    def _num_usable(self) -> int:
        return self.layout.num_blocks - 1

    @property
    def _full_length_blocks(self) -> int:
        return self.layout.blocks_per_request(self.max_model_len, max_step_tokens=1)


def plan_memory(
    config: EngineConfig,
    program: Program,
    free_bytes: int,
    beside: tuple[CacheLayer, ...] = (),
    share: float = FREE_MEMORY_SHARE,
    index_bytes: int = 0,
) -> MemoryPlan:
    """Sizes the block pool from flags, or from free memory.

    Without flags the pool holds `max_num_seqs` requests of full length, one of them in the middle of its prompt, or as
    much as its share of the free memory allows.

    Args:
        free_bytes: memory that is free beside all else.
        beside: layers of a second model, which keep state of the same tokens.
        share: of the free memory that blocks may take unless told otherwise.
        index_bytes: what each block takes besides.

    Raises:
        ConfigError: a longer request than the model was made for, more blocks than can be numbered, or more memory for
            blocks than is free.
        OutOfMemoryError: the pool cannot hold one request of the asked length; the message holds the arithmetic.
    """
    one_block = kv_layout(config, program, beside, num_blocks=2)
    wanted_len = min(config.model.max_model_len or program.max_positions, program.max_positions)
    if config.model.max_model_len is not None and config.model.max_model_len > program.max_positions:
        raise ConfigError(
            "max_model_len",
            config.model.max_model_len,
            f"the model was made for {program.max_positions} positions; ask for at most that",
        )
    free_bytes = _beside_host_tier(config, free_bytes)
    num_blocks = _num_blocks(config, one_block, wanted_len, share * free_bytes, index_bytes)
    layout = kv_layout(config, program, beside, num_blocks)
    _require_room(config, layout, free_bytes)
    fitting_len = _fitting_len(config, layout, wanted_len)
    if config.model.max_model_len is not None and fitting_len < wanted_len:
        raise OutOfMemoryError(_too_small(config, layout, wanted_len, fitting_len))
    if fitting_len < 2:
        raise OutOfMemoryError(_too_small(config, layout, 2, fitting_len))
    return MemoryPlan(layout, fitting_len, sum(spec.bytes_per_token(layout.dtype) for spec in _specs(beside)))


def _beside_host_tier(config: EngineConfig, free_bytes: int) -> int:
    """Memory that is free beside what blocks may take that the pool lets go."""
    host_bytes = config.cache.kv_host_memory_bytes or 0
    if host_bytes > max(0, free_bytes):
        problem = f"only {max(0, free_bytes)} bytes of memory are free beside the weights; ask for less than that"
        raise ConfigError("kv_host_memory_bytes", host_bytes, problem)
    return free_bytes - host_bytes


def kv_layout(config: EngineConfig, program: Program, beside: tuple[CacheLayer, ...], num_blocks: int) -> KVLayout:
    """A pool of so many blocks for the layers of a program and of a second one beside it."""
    cache = config.cache
    return lay_out(
        _specs(program.cache_layers),
        beside=_specs(beside),
        num_blocks=num_blocks,
        block_size=cache.block_size,
        dtype=cache.kv_cache_dtype,
    )


def _specs(layers: tuple[CacheLayer, ...]) -> tuple[AttentionSpec, ...]:
    return tuple(
        AttentionSpec(num_kv_heads=layer.kv_heads, head_dim=layer.head_dim, window=layer.window) for layer in layers
    )


def _num_blocks(
    config: EngineConfig, layout: KVLayout, max_model_len: int, usable_bytes: float, index_bytes: int
) -> int:
    cache, most = config.cache, MAX_SLOTS // layout.block_size
    if cache.num_kv_blocks is not None:
        if cache.num_kv_blocks > most:
            raise ConfigError("num_kv_blocks", cache.num_kv_blocks, f"at most {most} blocks can be numbered")
        return cache.num_kv_blocks
    if cache.kv_cache_memory_bytes is not None:
        num_blocks = 1 + cache.kv_cache_memory_bytes // layout.bytes_per_block
        if num_blocks > most:
            problem = f"at most {most} blocks of {layout.bytes_per_block} bytes can be numbered"
            raise ConfigError("kv_cache_memory_bytes", cache.kv_cache_memory_bytes, problem)
        return num_blocks
    enough = (config.scheduler.max_num_seqs - 1) * layout.blocks_per_request(max_model_len, max_step_tokens=1)
    enough += _needed(config, layout, max_model_len)
    affordable = int(max(0, usable_bytes)) // (layout.bytes_per_block + index_bytes)
    return 1 + min(enough, most - 1, affordable)


def _require_room(config: EngineConfig, layout: KVLayout, free_bytes: int) -> None:
    """A pool whose size was told fits into memory: else the system would end the engine once the blocks are used."""
    cache = config.cache
    told = {"num_kv_blocks": cache.num_kv_blocks, "kv_cache_memory_bytes": cache.kv_cache_memory_bytes}
    pool_bytes = (layout.num_blocks - 1) * layout.bytes_per_block
    for field, value in told.items():
        if value is not None and pool_bytes > free_bytes:
            free = f"{max(0, free_bytes) / 2**30:.1f} GiB of this machine's memory are free beside the weights"
            fix = f"ask for less than that, or leave --{field.replace('_', '-')} out for at most half of it"
            raise ConfigError(field, value, f"a pool of {pool_bytes / 2**30:.1f} GiB, but {free}: {fix}")


def _needed(config: EngineConfig, layout: KVLayout, num_tokens: int) -> int:
    """Most blocks that a request of so many tokens holds at one time, alone: its steps take the whole budget."""
    return layout.blocks_per_request(num_tokens, config.scheduler.max_num_batched_tokens)


def _fitting_len(config: EngineConfig, layout: KVLayout, wanted_len: int) -> int:
    """Longest request, up to the wanted length, that the pool can hold."""
    lengths = range(wanted_len + 1)
    return bisect_right(lengths, layout.num_blocks - 1, key=lambda length: _needed(config, layout, length)) - 1


def _too_small(config: EngineConfig, layout: KVLayout, wanted_len: int, fitting_len: int) -> str:
    needed = _needed(config, layout, wanted_len)
    return (
        f"KV memory of {layout.num_blocks - 1} blocks x {layout.bytes_per_block} bytes holds {fitting_len} tokens, but "
        f"one request of {wanted_len} tokens takes {needed} blocks = {needed * layout.bytes_per_block} bytes: raise "
        "--kv-cache-memory-bytes (or --num-kv-blocks), or lower --max-model-len"
    )
