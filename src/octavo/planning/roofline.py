"""The roofline (Williams, Waterman, Patterson 2009): a step takes at least its operations over the peak, and at least
its bytes over the bandwidth. A multiply and an add count two."""

from octavo.planning.shape import ModelShape


def ridge_flops_per_byte(flops_per_s: float, bytes_per_s: float) -> float:
    """Operations per byte from which on arithmetic is the limit."""
    return flops_per_s / bytes_per_s


def arithmetic_intensity(num_tokens: int, bytes_per_weight: float) -> float:
    """FLOP per byte of weights that a step of so many tokens reads: 2 for each token and weight."""
    return flops_per_weight(num_tokens) / bytes_per_weight


def flops_per_weight(num_tokens: int) -> int:
    """FLOP per weight, not per byte; with 16-bit weights twice the intensity."""
    return 2 * num_tokens


def boundary_tokens(ridge: float, bytes_per_weight: float) -> float:
    """Tokens per step whose linears do as much arithmetic as the ridge asks for; fewer are bound by memory."""
    return ridge * bytes_per_weight / 2


def dense_flops(num_parameters: int, num_tokens: int) -> int:
    """The rule of thumb: two operations for each parameter and token, tables included, attention not."""
    return 2 * num_parameters * num_tokens


def causal_attention_flops(shape: ModelShape, num_tokens: int) -> int:
    """Scores and their sum of values for a whole prompt: half of the square of its length, for each head. Windows are
    not looked at."""
    square = num_tokens * num_tokens
    return sum(square * layer.num_heads * (layer.key_dim + layer.value_dim) for layer in shape.layers)


def compute_bound_s(flops: float, flops_per_s: float, num_devices: int = 1) -> float:
    """Least time of the arithmetic, spread over devices without loss."""
    return flops / (flops_per_s * num_devices)


def memory_bound_s(read_bytes: float, bytes_per_s: float) -> float:
    """Least time to read so many bytes of one device's memory."""
    return read_bytes / bytes_per_s


def decode_bound_s(weight_bytes: float, bytes_per_s: float, *, num_requests: int = 0, kv_bytes: float = 0) -> float:
    """Least time of a decoding step on one device: its weights once, the KV of each request once.

    Args:
        kv_bytes: of one request, on this device.
    """
    return memory_bound_s(weight_bytes + num_requests * kv_bytes, bytes_per_s)


def model_flops_share(flops: float, step_s: float, flops_per_s: float, num_devices: int) -> float:
    """MFU: what of the peak a step of this duration used."""
    return compute_bound_s(flops, flops_per_s, num_devices) / step_s


def time_at_share(bound_s: float, share: float) -> float:
    """What a bound becomes if only this share of the peak is reached."""
    return bound_s / share


def share_of_bound(bound_s: float, step_s: float) -> float:
    """How near a measured step is to its bound."""
    return bound_s / step_s


def scaled_step_s(step_s: float, num_tokens: int, boundary: float) -> float:
    """A rule for steps past the boundary: as slow as a measured step below it, times the tokens over the boundary."""
    return step_s * max(1.0, num_tokens / boundary)


def output_tokens_per_s(num_requests: int, step_s: float) -> float:
    """Of steps that give each request one token."""
    return num_requests / step_s
