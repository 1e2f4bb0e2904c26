"""The arithmetic of KV memory at start."""

import pytest

from octavo.config import EngineConfig
from octavo.engine.memory import plan_memory
from octavo.errors import ConfigError, OutOfMemoryError
from octavo.model.program import CacheLayer, Program

FULL = CacheLayer(kv_heads=2, head_dim=64)
SLIDING = CacheLayer(kv_heads=2, head_dim=64, window=128)
PLENTY = 1 << 40
BLOCK_BYTES = 16 * 2 * 2 * 64 * 2  # one layer: 16 tokens, K and V, 2 heads of 64, fp16


def program(*layers: CacheLayer, max_positions: int = 1024) -> Program:
    return Program("test", (), {}, {}, layers, (), {}, 100, max_positions)


def config(**settings: object) -> EngineConfig:
    return EngineConfig.from_fields({"max_num_seqs": 64, "max_num_batched_tokens": 1024, **settings})


def test_the_pool_holds_every_sequence_at_full_length_where_memory_allows() -> None:
    plan = plan_memory(config(max_num_seqs=4), program(FULL, FULL), 1 << 40)
    assert plan.layout.num_blocks == 1 + 4 * 64
    assert plan.max_model_len == 1024


def test_half_of_free_memory_is_the_limit_and_the_length_follows() -> None:
    plan = plan_memory(config(max_num_seqs=4), program(FULL, FULL), 2 * 2 * BLOCK_BYTES * 10)
    assert plan.layout.num_blocks == 11
    assert plan.max_model_len == 160


def test_bytes_and_blocks_by_flag() -> None:
    by_bytes = plan_memory(config(kv_cache_memory_bytes=2 * BLOCK_BYTES * 100 + 1), program(FULL, FULL), PLENTY)
    by_blocks = plan_memory(config(num_kv_blocks=101), program(FULL, FULL), PLENTY)
    assert by_bytes.layout == by_blocks.layout
    assert by_bytes.layout.bytes_per_block == 2 * BLOCK_BYTES


def test_a_request_takes_blocks_in_every_group() -> None:
    plan = plan_memory(config(num_kv_blocks=31), program(SLIDING, SLIDING, FULL), PLENTY)
    assert len(plan.layout.groups) == 3
    assert plan.max_model_len == 160


def test_windows_count_for_what_they_hold() -> None:
    """128 tokens back are 8 blocks, 9 where the border of the window cuts one; a budget of 256 tokens adds 16."""
    plan = plan_memory(config(num_kv_blocks=200, max_num_batched_tokens=256), program(SLIDING, SLIDING, FULL), PLENTY)
    assert plan.max_model_len == 1024
    in_the_prompt, decoding = 64 + 2 * (8 + 17), 64 + 2 * (8 + 1)
    assert in_the_prompt <= 199 < 3 * decoding
    assert plan.num_full_length_requests == 2
    assert plan.num_tokens == 199 * 1024 // decoding
    shorter = plan_memory(config(num_kv_blocks=81, max_num_batched_tokens=256), program(SLIDING, SLIDING, FULL), PLENTY)
    assert shorter.max_model_len == (80 - 50) * 16


def test_the_pool_made_for_windows_is_smaller() -> None:
    plan = plan_memory(config(max_num_seqs=4, max_num_batched_tokens=256), program(SLIDING, SLIDING, FULL), 1 << 40)
    assert plan.layout.num_blocks == 1 + 3 * (64 + 2 * 9) + 64 + 2 * 25
    assert plan.num_full_length_requests == 4


def test_a_length_that_does_not_fit_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(OutOfMemoryError, match=r"10 blocks x 16384 bytes holds 160 tokens.*512 tokens takes 32 blocks"):
        plan_memory(config(max_model_len=512, num_kv_blocks=11), program(FULL, FULL), PLENTY)


def test_no_memory_at_all_is_refused() -> None:
    with pytest.raises(OutOfMemoryError, match="0 blocks"):
        plan_memory(config(), program(FULL), 1000)


@pytest.mark.parametrize("flag", [{"num_kv_blocks": 2**26 + 1}, {"kv_cache_memory_bytes": 2**60}])
def test_more_blocks_than_can_be_numbered_are_refused(flag: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=rf"{next(iter(flag))}=\d+: at most 67108864 blocks"):
        plan_memory(config(**flag), program(FULL), 1 << 40)


def test_without_flags_the_pool_stays_within_what_can_be_numbered() -> None:
    plan = plan_memory(config(max_num_seqs=2**24), program(FULL), 1 << 60)
    assert plan.layout.num_blocks == 2**26


def test_more_positions_than_the_model_has_are_refused() -> None:
    with pytest.raises(ConfigError, match="1024 positions"):
        plan_memory(config(max_model_len=1025), program(FULL), 1 << 40)


def test_host_memory_for_blocks_is_taken_from_what_is_free() -> None:
    free, of_host = 2 * 2 * BLOCK_BYTES * 10, 2 * 2 * BLOCK_BYTES * 4
    plan = plan_memory(config(kv_host_memory_bytes=of_host), program(FULL, FULL), free)
    assert plan.layout.num_blocks == 1 + 6


@pytest.mark.parametrize("blocks", [None, 101])
def test_more_host_memory_than_is_free_is_refused_by_its_name(blocks: int | None) -> None:
    with pytest.raises(ConfigError, match=r"kv_host_memory_bytes=1099511627776: only 1000000 bytes"):
        plan_memory(config(kv_host_memory_bytes=1 << 40, num_kv_blocks=blocks), program(FULL, FULL), 1_000_000)


def test_no_free_memory_is_no_negative_number_of_blocks() -> None:
    with pytest.raises(OutOfMemoryError, match=r"KV memory of 0 blocks"):
        plan_memory(config(), program(FULL, FULL), -5_000_000)


@pytest.mark.parametrize(
    ("flag", "pool"),
    [({"kv_cache_memory_bytes": 900 * 2**30}, "900.0"), ({"num_kv_blocks": 2**25 + 1}, "512.0")],
)
def test_a_pool_that_does_not_fit_into_memory_is_refused_with_both_figures(flag: dict[str, int], pool: str) -> None:
    (name, value) = next(iter(flag.items()))
    free = r"21\.5 GiB of this machine's memory are free beside the weights"
    fix = f"ask for less than that, or leave --{name.replace('_', '-')} out"
    with pytest.raises(ConfigError, match=rf"^{name}={value}: a pool of {pool} GiB, but {free}: {fix}"):
        plan_memory(config(**flag), program(FULL, FULL), 43 * 2**29)
    host = {"kv_host_memory_bytes": 10 * 2 * BLOCK_BYTES}
    ten = {"kv_cache_memory_bytes": 20 * BLOCK_BYTES}
    assert plan_memory(config(**ten, **host), program(FULL, FULL), 40 * BLOCK_BYTES).layout.num_blocks == 11
    with pytest.raises(ConfigError, match="kv_cache_memory_bytes=163840"):
        plan_memory(config(**ten, **host), program(FULL, FULL), 40 * BLOCK_BYTES - 1)
