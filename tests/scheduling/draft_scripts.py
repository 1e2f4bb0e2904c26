"""Proposers for the scripted executor, which shows them what will come."""

from collections.abc import Sequence


def right(_: Sequence[int], upcoming: Sequence[int]) -> Sequence[int]:
    """All of it."""
    return upcoming


def wrong(_: Sequence[int], upcoming: Sequence[int]) -> Sequence[int]:
    """Nothing of it."""
    return [token_id + 1 for token_id in upcoming]


def half_right(known: Sequence[int], upcoming: Sequence[int]) -> Sequence[int]:
    """Right up to a place that hangs on what is known, and then not; sometimes fewer than asked for."""
    chance = (sum(known[-3:]) * 2654435761) >> 7
    num_right, count = chance % (len(upcoming) + 1), (chance >> 8) % (len(upcoming) + 2)
    return [token_id + (place >= num_right) for place, token_id in enumerate(upcoming)][:count]


ALL = (right, wrong, half_right)
