"""One batch alone: how long its prefill takes, and then each step."""

from collections.abc import Sequence
from statistics import quantiles
from typing import Any

from octavo.bench.datasets import Talk
from octavo.bench.machine import peak_memory_bytes
from octavo.bench.measured import draft_figures, mean_len, run_talks
from octavo.engine.llm import LLM
from octavo.errors import ConfigError, RequestFailedError
from octavo.request.outputs import RequestStats


def measure_latency(llm: LLM, talks: Sequence[Talk], batch_size: int, output_len: int) -> dict[str, Any]:
    """Runs batches of `batch_size` talks one after another; the first warms up and does not count. Of talks of several
    requests each round is a batch of its own, with what was said before it in its prompts.

    Prefill lasts until the last request of the batch has its first token; decoding from there to the end of the batch,
    divided by the steps it took: with drafts, as many as the request took that had the fewest right. Times come from
    the engine core's clock.

    Args:
        output_len: of all requests.

    Raises:
        ConfigError: there is no decoding step to measure.
    """
    if output_len < 2:
        raise ConfigError("output_len", output_len, "must be at least 2: the first token belongs to the prefill")
    batches = [talks[start : start + batch_size] for start in range(0, len(talks), batch_size)]
    runs = [ledgers for rounds in [run_talks(llm, batch) for batch in batches][1:] for ledgers in rounds]
    prefill = [_prefill_s(ledgers) for ledgers in runs]
    decode = [_decode_s(ledgers) for ledgers in runs]
    steps = [output_len - 1 - min(ledger.num_saved_steps for ledger in ledgers) for ledgers in runs]
    decoded = [len(ledgers) * (output_len - 1) for ledgers in runs]
    every = [ledger for ledgers in runs for ledger in ledgers]
    cached = sum(ledger.num_cached_tokens for ledger in every)
    return {
        "model": llm.info.model,
        "batch_size": batch_size,
        "input_len": mean_len([ledger.num_prompt_tokens for ledger in every]),
        "output_len": output_len,
        "repeats": len(runs),
        "prefill_s": spread(prefill),
        "prefill_tokens_per_s": spread([_computed(run) / seconds for run, seconds in zip(runs, prefill, strict=True)]),
        "prefix_hit_rate": cached / sum(ledger.num_prompt_tokens for ledger in every),
        "decode_step_s": spread([seconds / count for seconds, count in zip(decode, steps, strict=True)]),
        "decode_tokens_per_s": spread([tokens / seconds for tokens, seconds in zip(decoded, decode, strict=True)]),
        **draft_figures(every),
        "peak_memory_bytes": peak_memory_bytes(),
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, p10 and p90 of repeats (linear between neighbours)."""
    if len(values) == 1:
        return dict.fromkeys(("median", "p10", "p90"), values[0])
    tenths = quantiles(values, n=10, method="inclusive")
    return {"median": tenths[4], "p10": tenths[0], "p90": tenths[8]}


def _computed(ledgers: Sequence[RequestStats]) -> int:
    """Prompt tokens that were not in the prefix cache."""
    return sum(ledger.num_prompt_tokens - ledger.num_cached_tokens for ledger in ledgers)


def _prefill_s(ledgers: Sequence[RequestStats]) -> float:
    return _last_first_token(ledgers) - min(_known(ledger.first_scheduled_s) for ledger in ledgers)


def _decode_s(ledgers: Sequence[RequestStats]) -> float:
    return max(_known(ledger.finished_s) for ledger in ledgers) - _last_first_token(ledgers)


def _last_first_token(ledgers: Sequence[RequestStats]) -> float:
    return max(_known(ledger.first_token_s) for ledger in ledgers)


def _known(time_s: float | None) -> float:
    if time_s is None:
        raise RequestFailedError("the engine's ledger lacks a time; the measurement means nothing")
    return time_s
