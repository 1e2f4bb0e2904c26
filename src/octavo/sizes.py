"""Sizes of memory as people write them: `2GiB`, `512MB`, `80%`, and back."""

import re

_UNITS = {"": 1, "B": 1, "K": 10**3, "KB": 10**3, "M": 10**6, "MB": 10**6, "G": 10**9, "GB": 10**9}
_UNITS |= {"T": 10**12, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_size(text: object) -> int:
    """Bytes of `2GiB`, `512MB`, `1.5GiB` or `1048576`.

    Raises:
        ValueError: anything else, with how it should look.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", str(text).strip())
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(f"{str(text)!r} is no size; write it like 2GiB, 512MB or 1048576")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def parse_share(text: object) -> float | None:
    """0.8 of `80%`; None: there is no percent sign."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", str(text).strip())
    return None if match is None else float(match[1]) / 100


def size_text(num_bytes: int) -> str:
    """For people: `97 MB`, `1.5 GB`."""
    return f"{num_bytes / 1e6:.0f} MB" if abs(num_bytes) < 1e9 else f"{num_bytes / 1e9:.1f} GB"
