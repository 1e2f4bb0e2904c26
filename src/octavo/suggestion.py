"""What a wrong name may have been meant to be: the end of many an error's message."""

from collections.abc import Iterable
from difflib import get_close_matches

LIKENESS = 0.6
"""Least share of characters in common, 0 to 1."""
MAX_COMPARED = 200
"""Characters of a wrong name that are looked at: comparing takes the product of both lengths."""


def did_you_mean(unknown: str, known: Iterable[str], *, most: int = 1) -> str:
    """A question that names those most like it, the likest first; empty: none is like it.

    Args:
        most: so many are named.
    """
    near = get_close_matches(unknown[:MAX_COMPARED], known, n=most, cutoff=LIKENESS)
    return f"did you mean {' or '.join(near)}?" if near else ""
