"""All requests at once: how many tokens a second."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from octavo.bench.machine import peak_memory_bytes
from octavo.bench.measured import draft_figures, run_batch
from octavo.engine.llm import LLM

WARM_UP_TOKENS = 4


def measure_throughput(
    llm: LLM, prompts: Sequence[list[int]], output_len: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """Runs all prompts through the engine and reports rates over the whole wall time, stragglers included.

    `prefill_tokens_per_s` counts prompt tokens that were computed (not those from the prefix cache) over the same
    time, so it is a share of the work and no peak rate; `bench latency` measures that.
    """
    # A prompt that no measured one begins with: the warm-up must not fill the cache for them.
    run_batch(llm, [list(reversed(prompts[0]))], min(WARM_UP_TOKENS, output_len))
    begin = clock()
    ledgers = run_batch(llm, prompts, output_len)
    elapsed = clock() - begin
    prompt_tokens = sum(ledger.num_prompt_tokens for ledger in ledgers)
    cached_tokens = sum(ledger.num_cached_tokens for ledger in ledgers)
    output_tokens = output_len * len(prompts)
    return {
        "model": llm.info.model,
        "num_prompts": len(prompts),
        "input_len": len(prompts[0]),
        "output_len": output_len,
        "concurrency": llm.info.max_num_seqs,
        "elapsed_s": elapsed,
        "output_tokens_per_s": output_tokens / elapsed,
        "total_tokens_per_s": (prompt_tokens + output_tokens) / elapsed,
        "prefill_tokens_per_s": (prompt_tokens - cached_tokens) / elapsed,
        "requests_per_s": len(prompts) / elapsed,
        "prefix_hit_rate": cached_tokens / prompt_tokens,
        "num_preemptions": sum(ledger.num_preemptions for ledger in ledgers),
        **draft_figures(ledgers),
        "peak_memory_bytes": peak_memory_bytes(),
    }
