"""Same request, same tokens, same logprob bits, however KV memory is shared, copied, let go of and reused."""

import pytest

from octavo import LLM
from octavo.execution.runner import Runner
from octavo.scheduling.plan import StepPlan, StepResult
from tests.equality.conftest import TinyBaseline
from tests.equality.settings import NOTHING_FORESEEN, Again, Crowd, Fields, Setting, crowd
from tests.equality.transcript import assert_same
from tests.equality.workload import greedy, in_order, reverse
from tests.execution.poison import poison
from tests.real_models import model_path

SMALL: dict[str, object] = {"max_model_len": 512, "max_num_batched_tokens": 64, **NOTHING_FORESEEN}
SMALL_POOLS = {"llama": 58, "gemma3": 56}
"""Blocks of 16 tokens: room for one or two of the prompts, over all groups."""
SETTINGS: dict[str, Setting] = {
    "all at once": Crowd(at_least={"cached_tokens": 1500}),
    "parts of blocks": Again(at_least={"copied_tokens": 150}),
    "parts of large blocks": Again({"block_size": 64}, order=reverse, at_least={"copied_tokens": 250}),
    "whole blocks only": Again({"sub_block_match": False}, at_least={"cached_tokens": 3000}),
    "blocks of 4": Again({"block_size": 4}, order=reverse, at_least={"copied_tokens": 20}),
    "one by one, last first": Crowd({"max_num_seqs": 1}, order=reverse, at_least={"copied_tokens": 50}),
    "budget 16": Again({"max_num_batched_tokens": 16}, at_least={"copied_tokens": 150}),
    "chunks of 7, 3 threads": Again(
        {"long_prefill_token_threshold": 7, "threads": 3, "max_num_seqs": 4}, at_least={"copied_tokens": 100}
    ),
}


def small_pool_settings(num_kv_blocks: int) -> dict[str, Setting]:
    """In which requests push each other out."""
    small = SMALL | {"num_kv_blocks": num_kv_blocks}
    return {
        "small pool": Crowd(small, at_least={"preemptions": 2, "evicted_blocks": 10, "copied_tokens": 10}),
        "small pool, warm": Again(small, order=in_order, at_least={"preemptions": 2, "copied_tokens": 10}),
        "small pool, no cache": Crowd({**small, "enable_prefix_caching": False}, at_least={"preemptions": 1}),
        "small pool, blocks of 4": Again(
            {**small, "block_size": 4, "num_kv_blocks": 3 * num_kv_blocks + 30},
            order=in_order,
            at_least={"preemptions": 2, "evicted_blocks": 100, "copied_tokens": 2},
        ),
    }


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_long_prompts_that_share_beginnings(tiny_baseline: TinyBaseline, family: str, setting: str) -> None:
    tiny_baseline(family, "branching").check(SETTINGS[setting])


@pytest.mark.parametrize("setting", small_pool_settings(0))
@pytest.mark.parametrize("family", SMALL_POOLS)
def test_long_prompts_in_a_small_pool(tiny_baseline: TinyBaseline, family: str, setting: str) -> None:
    tiny_baseline(family, "branching").check(small_pool_settings(SMALL_POOLS[family])[setting])


def poison_unused_blocks(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Before every step, fills with NaN the null block and all free ones that nobody could find. Returns a list that
    grows by their number in each step."""
    manager = llm._engine._core._scheduler._manager  # type: ignore[attr-defined]
    execute, counts = Runner.execute, list[int]()

    def poisoned(self: Runner, plan: StepPlan) -> StepResult:
        unused = [block.id for block in manager._pool.free_blocks() if block.hash is None]
        unused += range(len(manager._pool.blocks), manager.layout.num_blocks)
        poison(self._executor, 7, [0, *unused])
        counts.append(len(unused))
        return execute(self, plan)

    monkeypatch.setattr(Runner, "execute", poisoned)
    return counts


POISONED: dict[str, Fields] = {
    "default": {"num_kv_blocks": 300},
    "no cache": {"num_kv_blocks": 300, "enable_prefix_caching": False},
    "blocks of 4": {"num_kv_blocks": 700, "block_size": 4, "max_num_batched_tokens": 256},
    "small pool": {**SMALL, "max_num_batched_tokens": 128, "num_kv_blocks": 90},
}


@pytest.mark.parametrize(
    ("name", "kv_cache_dtype"), [*((name, "fp16") for name in POISONED), ("default", "int8"), ("blocks of 4", "fp8")]
)
def test_unused_blocks_full_of_nan(
    tiny_baseline: TinyBaseline, name: str, kv_cache_dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    baseline, fields = tiny_baseline("windows", "branching", kv_cache_dtype), POISONED[name]
    with LLM(baseline.model, **{**baseline.fields, **fields}) as llm:
        counts = poison_unused_blocks(llm, monkeypatch)
        assert_same(baseline.transcripts, crowd(llm, baseline.workload))
        assert_same(baseline.transcripts, crowd(llm, reverse(baseline.workload)))
    assert len(counts) > 20 and max(counts) > 20


@pytest.mark.slow
def test_gemma3_at_1500_tokens_holds_what_its_windows_need_and_says_the_same() -> None:
    """15 of 18 layers see 512 tokens: 6 groups of 3 layers, of which one keeps all 95 blocks and five keep 33."""
    model = str(model_path("gemma3-270m"))
    fields = {"max_model_len": 1536, "threads": 2, "kv_cache_memory_bytes": 512 * 2**20, "seed": 0}
    text = [2 + (i * 7919) % 50_000 for i in range(1490)]
    seen = []
    for cut, cached in ((512, False), (64, True)):
        with LLM(model, **fields, max_num_batched_tokens=cut, enable_prefix_caching=cached) as llm:
            (cold,) = llm.generate([text], [greedy(16, logprobs=1)])
            seen.append(cold.outputs[0])
            manager = llm._engine._core._scheduler._manager  # type: ignore[attr-defined]
            stats = cold.ledger[0]
            assert stats is not None
            assert stats.max_blocks <= manager.layout.blocks_per_request(1505, cut) < 6 * 95
            if cached:
                (warm,) = llm.generate([text], [greedy(16, logprobs=1)])
                seen.append(warm.outputs[0])
                assert warm.ledger[0] is not None and warm.ledger[0].num_cached_tokens == len(text) - 1
    whole, *others = seen
    assert len(whole.token_ids) == 16 and len(others) == 2
    assert all((other.token_ids, other.logprobs) == (whole.token_ids, whole.logprobs) for other in others)
