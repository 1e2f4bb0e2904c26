"""Prefill in one place, decode in another: KV that moves between them, and KV that waits."""


def transfer_s(num_bytes: float, link_bytes_per_s: float, num_links: int = 1) -> float:
    """Least time over links that share the bytes evenly."""
    return num_bytes / num_links / link_bytes_per_s


def pending_kv_bytes(tokens_per_s: float, handoff_s: float, token_bytes: float) -> float:
    """KV that a prefill instance still holds for others (Little 1961: what arrives per second, times how long it
    stays)."""
    return tokens_per_s * handoff_s * token_bytes


def num_steps_covered(duration_s: float, step_s: float) -> float:
    """Decoding steps that pass meanwhile."""
    return duration_s / step_s
