"""Figures that are often read or printed wrong: what their inputs give, what is met instead, and why."""

from dataclasses import dataclass

from octavo.planning import adapters, kv, roofline, speculation
from octavo.planning.shape import ModelShape


@dataclass(frozen=True)
class Dispute:
    """One figure, both ways."""

    key: str
    unit: str
    """Both values are in its base unit."""
    figure: float
    """What the inputs give."""
    instead: float
    """What is met instead."""
    reason: str


def prefill_intensity(prompt_tokens: int, bytes_per_weight: float) -> Dispute:
    """Operations per byte, against operations per weight."""
    return Dispute(
        "prefill_intensity",
        "FLOP/B",
        roofline.arithmetic_intensity(prompt_tokens, bytes_per_weight),
        roofline.flops_per_weight(prompt_tokens),
        "two operations for each token and WEIGHT are taken for operations per BYTE; only 8-bit weights have one byte"
        " each. Decoding one request at 1 FLOP/B needs the same rule as the figure",
    )


def intensity_over_ridge(prompt_tokens: int, bytes_per_weight: float, ridge: float) -> Dispute:
    """How far a prompt lies beyond the ridge."""
    both = prefill_intensity(prompt_tokens, bytes_per_weight)
    reason = "operations per weight are taken for operations per byte"
    return Dispute("prefill_intensity_over_ridge", "x", both.figure / ridge, both.instead / ridge, reason)


def speculative_throughput(tokens_per_step: float, step_time_ratio: float) -> Dispute:
    """Past the boundary steps are slower, and yet yield more."""
    return Dispute(
        "speculative_throughput_factor",
        "x",
        speculation.throughput_factor(tokens_per_step, step_time_ratio),
        1 / step_time_ratio,
        "slower steps are taken for lower throughput, but each yields"
        f" {tokens_per_step:g} tokens; it falls only below {step_time_ratio:.3g} tokens per step",
    )


def speculative_tpot(step_s: float, tokens_per_step: float) -> Dispute:
    """Time per token, against time per step."""
    return Dispute(
        "speculative_tpot_s",
        "ms",
        speculation.tpot_s(step_s, tokens_per_step),
        step_s,
        f"the time of a step is taken for that of a token; a step yields {tokens_per_step:g}",
    )


def replica_pool(num_devices: int, num_replicas: int, usable_bytes: float, weight_bytes: float) -> Dispute:
    """KV of one of several replicas, over that of one model on all devices."""
    each = num_devices // num_replicas
    whole = kv.kv_pool_bytes(num_devices, usable_bytes, weight_bytes)
    return Dispute(
        "replica_pool_share",
        "x",
        kv.kv_pool_bytes(each, usable_bytes, weight_bytes) / whole,
        each / num_devices,
        f"{num_replicas} replicas are taken to share the KV memory, but each holds all weights again",
    )


def adapter_flops(shape: ModelShape, rank: int, num_parameters: int) -> Dispute:
    """What adapters on all linears add to a token's arithmetic."""
    return Dispute(
        "adapter_flops_share",
        "%",
        adapters.flops_share(shape, rank, num_parameters),
        adapters.rank_share(rank, shape.hidden_size),
        "the rank over the width is what ONE half of an adapter adds to a square linear; linears have two halves and"
        " are not all square",
    )


def requests_that_fit(pool_bytes_per_device: float, request_per_device: float, request_bytes: float) -> Dispute:
    """Requests in one device's KV memory."""
    return Dispute(
        "kv_pool_requests",
        "requests",
        kv.num_requests_that_fit(pool_bytes_per_device, request_per_device),
        kv.in_requests(pool_bytes_per_device, request_bytes),
        "ONE device's memory is divided by what a request takes on ALL devices",
    )


def weight_read(weight_bytes: float, bytes_per_s: float, rounded_bytes_per_s: float) -> Dispute:
    """Time to read the weights once."""
    return Dispute(
        "weight_read_s",
        "ms",
        roofline.memory_bound_s(weight_bytes, bytes_per_s),
        roofline.memory_bound_s(weight_bytes, rounded_bytes_per_s),
        f"one is computed with {bytes_per_s / 1e12:g} TB/s, the other with {rounded_bytes_per_s / 1e12:g} TB/s",
    )
