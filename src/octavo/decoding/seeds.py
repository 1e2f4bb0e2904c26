"""Seeds of the answers of one request."""

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def derive_seed(seed: int, index: int) -> int:
    """The seed of answer `index` of a request with n > 1; answer 0 keeps the request's own seed.

    So n = 1 with seed s equals answer 0 of n = k with seed s, and any answer can be had again alone by its own seed.

    Args:
        seed: in [0, 2**63).
        index: >= 0.

    Returns:
        A seed in [0, 2**63): SplitMix64 (Steele, Lea, Flood 2014) of the mixed seed plus `index` steps.
    """
    if index == 0:
        return seed
    return _mix(_mix(seed) + index * _GOLDEN) >> 1


def _mix(x: int) -> int:
    x &= _MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)
