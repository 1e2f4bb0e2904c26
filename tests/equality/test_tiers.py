"""Same request, same tokens, same logprob bits, with blocks that come back from host memory and from disk."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from octavo import LLM
from tests.equality.conftest import TinyBaseline
from tests.equality.settings import NOTHING_FORESEEN, Fields, assert_grown, crowd, pool_of
from tests.equality.test_tiny import SMALL_POOLS
from tests.equality.tiny_models import EVERY_FAMILY
from tests.equality.transcript import Transcripts
from tests.equality.workload import Workload, reverse, shuffled

MIB = 2**20
HOST: Fields = {"kv_host_memory_bytes": 64 * MIB}


@dataclass(frozen=True)
class Restarted:
    """All requests at once in an engine that finds on disk what others have left there."""

    folder: Path
    fields: Fields = field(default_factory=dict)
    before: Fields = field(default_factory=dict)
    """Of the engines that have left it, one after the other."""

    def run(self, model: str, fields: Fields, workload: Workload) -> Transcripts:
        """See `Setting.run`."""
        disk = {"kv_disk_path": str(self.folder), "kv_disk_size_bytes": 64 * MIB}
        with LLM(model, **{**fields, **self.fields, **disk, **self.before}) as llm:
            crowd(llm, workload)
        with LLM(model, **{**fields, **self.fields, **disk}) as llm:
            before = llm.load()
            assert before.tiers[-1].tier == "disk"
            assert before.tiers[-1].num_blocks > 0
            transcripts = crowd(llm, shuffled(workload))
            assert_grown(before, llm.load(), {"disk_loaded_blocks": 1, "cached_tokens": 16})
        return transcripts


@dataclass(frozen=True)
class PushedOut:
    """All requests, several times, in a pool that forgets most of them in between."""

    fields: Fields
    tier: str = "host"
    times: int = 2

    def run(self, model: str, fields: Fields, workload: Workload) -> Transcripts:
        """See `Setting.run`."""
        with LLM(model, **{**fields, **self.fields}) as llm:
            before = llm.load()
            for i in range(self.times):
                crowd(llm, reverse(workload) if i % 2 else shuffled(workload))
            transcripts = crowd(llm, workload)
            assert_grown(before, llm.load(), {f"{self.tier}_loaded_blocks": 1, f"{self.tier}_stored_blocks": 10})
        return transcripts


AHEAD: Fields = {"async_scheduling": True}
SETTINGS: dict[str, Fields] = {
    "blocks of 4": {"block_size": 4},
    "blocks of 16": {},
    "planned a step ahead, blocks of 4": {"block_size": 4, **AHEAD},
    "planned a step ahead, budget 16": {"block_size": 4, "max_num_batched_tokens": 16, **AHEAD},
}


KV_DTYPES = [("llama", "int8"), ("gemma3", "fp8"), pytest.param("llama", "bf16", marks=pytest.mark.long)]
"""A block is bytes to a tier, scales of its rows included where there are some."""


def small_pool(model: str, family: str, kv_cache_dtype: object) -> Fields:
    """A pool in which requests push each other out."""
    num_tokens, _ = SMALL_POOLS[family]
    return {"max_model_len": 96, **pool_of(model, num_tokens, kv_cache_dtype), **NOTHING_FORESEEN}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_a_small_pool_with_host_memory_behind_it(tiny_baseline: TinyBaseline, family: str, setting: str) -> None:
    baseline = tiny_baseline(family, "growing")
    pool = small_pool(baseline.model, family, baseline.fields["kv_cache_dtype"])
    baseline.check(PushedOut({**pool, **HOST, **SETTINGS[setting]}))


@pytest.mark.parametrize(("family", "kv_cache_dtype"), KV_DTYPES)
def test_host_memory_by_kv_dtype(tiny_baseline: TinyBaseline, family: str, kv_cache_dtype: str) -> None:
    baseline = tiny_baseline(family, "growing", kv_cache_dtype)
    pool = small_pool(baseline.model, family, kv_cache_dtype)
    baseline.check(PushedOut({**pool, **HOST, **SETTINGS["planned a step ahead, budget 16"]}))


@pytest.mark.parametrize("setting", ["blocks of 16", "planned a step ahead, blocks of 4"])
@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_a_restart_with_a_disk(tiny_baseline: TinyBaseline, tmp_path: Path, family: str, setting: str) -> None:
    tiny_baseline(family).check(Restarted(tmp_path, SETTINGS[setting]))


@pytest.mark.parametrize(("family", "kv_cache_dtype"), KV_DTYPES)
def test_a_restart_by_kv_dtype(tiny_baseline: TinyBaseline, tmp_path: Path, family: str, kv_cache_dtype: str) -> None:
    tiny_baseline(family, "all", kv_cache_dtype).check(Restarted(tmp_path))


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_blocks_on_disk_serve_other_batches_and_threads(
    tiny_baseline: TinyBaseline, tmp_path: Path, family: str
) -> None:
    before = {"threads": 3, "max_num_batched_tokens": 16, "max_num_seqs": 2}
    tiny_baseline(family).check(Restarted(tmp_path, {"threads": 1}, before))
