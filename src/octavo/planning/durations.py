"""One request's times, and many requests' rates: the definitions that every measurement here shares."""

from collections.abc import Collection, Sequence
from itertools import pairwise

BENCHMARK_VARIABLES = (
    "model",
    "hardware",
    "length distribution",
    "concurrency",
    "prefix hit rate",
    "backends",
    "default settings",
)
"""What a measured figure names, or means nothing."""


def total_tokens(prompt_tokens: int, output_tokens: int) -> int:
    """Held at the end of a request."""
    return prompt_tokens + output_tokens


def tpot_s(e2e_s: float, ttft_s: float, output_tokens: int) -> float:
    """Time per output token after the first."""
    return (e2e_s - ttft_s) / num_token_gaps(output_tokens)


def decode_s(tpot: float, output_tokens: int) -> float:
    """From the first token to the last."""
    return num_token_gaps(output_tokens) * tpot


def e2e_s(ttft_s: float, tpot: float, output_tokens: int) -> float:
    """From arrival to the last token."""
    return ttft_s + decode_s(tpot, output_tokens)


def decode_share(ttft_s: float, tpot: float, output_tokens: int) -> float:
    """Of the time from arrival to the last token."""
    return decode_s(tpot, output_tokens) / e2e_s(ttft_s, tpot, output_tokens)


def num_token_gaps(output_tokens: int) -> int:
    """Samples of the inter-token latency."""
    return output_tokens - 1


def mean_token_gap_s(token_times_s: Sequence[float]) -> float:
    """Mean inter-token latency. One request's is its TPOT: the mean forgets the spread, the samples keep it."""
    gaps = [later - earlier for earlier, later in pairwise(token_times_s)]
    return sum(gaps) / len(gaps)


def steps_s(num_steps: float, step_s: float) -> float:
    """So many steps after each other."""
    return num_steps * step_s


def share(part: float, *others: float) -> float:
    """A part of the sum of all parts."""
    return part / (part + sum(others))


def requests_per_s(num_requests: int, elapsed_s: float) -> float:
    """Throughput in requests."""
    return num_requests / elapsed_s


def goodput_per_s(num_requests: int, failed: Collection[Collection[int]], elapsed_s: float) -> float:
    """Requests per second that kept every promise.

    Args:
        failed: for each promise, the requests that broke it; one that broke two counts once.
    """
    broken = {request for requests in failed for request in requests}
    return (num_requests - len(broken)) / elapsed_s


def static_batch_slot_use(output_tokens: Sequence[int], num_slots: int) -> float:
    """Slots that produce tokens, of all slots and steps, if each batch waits for its longest request."""
    batches = [output_tokens[start : start + num_slots] for start in range(0, len(output_tokens), num_slots)]
    return sum(output_tokens) / sum(num_slots * max(batch) for batch in batches)


def control_plane_s(schedule_s: float, prepare_s: float) -> float:
    """Host time per step outside the forward pass."""
    return schedule_s + prepare_s


def overhead_share(host_s: float, forward_s: float) -> float:
    """Host time over the forward pass that it stands beside."""
    return host_s / forward_s
