"""All requests at once: how many tokens a second."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from octavo.bench.datasets import Talk
from octavo.bench.machine import peak_memory_bytes
from octavo.bench.measured import draft_figures, mean_len, run_batch, run_talks
from octavo.engine.llm import LLM

WARM_UP_TOKENS = 4


def measure_throughput(
    llm: LLM, talks: Sequence[Talk], clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """Runs all talks through the engine and reports rates over the whole wall time, stragglers included.

    `prefill_tokens_per_s` counts prompt tokens that were computed (not those from the prefix cache) over the same
    time, so it is a share of the work and no peak rate; `bench latency` measures that.
    """
    # A prompt that no measured one begins with: the warm-up must not fill the cache for them.
    first = talks[0][0]
    run_batch(llm, [first.token_ids[::-1]], min(WARM_UP_TOKENS, first.output_len))
    begin = clock()
    ledgers = [ledger for ledgers in run_talks(llm, talks) for ledger in ledgers]
    elapsed = clock() - begin
    prompt_tokens = sum(ledger.num_prompt_tokens for ledger in ledgers)
    cached_tokens = sum(ledger.num_cached_tokens for ledger in ledgers)
    output_tokens = sum(ledger.num_output_tokens for ledger in ledgers)
    return {
        "model": llm.info.model,
        "num_prompts": len(ledgers),
        "input_len": mean_len([ledger.num_prompt_tokens for ledger in ledgers]),
        "output_len": mean_len([ledger.num_output_tokens for ledger in ledgers]),
        "concurrency": llm.info.max_num_seqs,
        "elapsed_s": elapsed,
        "output_tokens_per_s": output_tokens / elapsed,
        "total_tokens_per_s": (prompt_tokens + output_tokens) / elapsed,
        "prefill_tokens_per_s": (prompt_tokens - cached_tokens) / elapsed,
        "requests_per_s": len(ledgers) / elapsed,
        "prefix_hit_rate": cached_tokens / prompt_tokens,
        "num_preemptions": sum(ledger.num_preemptions for ledger in ledgers),
        **draft_figures(ledgers),
        "peak_memory_bytes": peak_memory_bytes(),
    }
