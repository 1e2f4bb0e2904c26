"""How much of what can be tried is tried: little by default, more for `OCTAVO_LONG=1`, which is for nights.

Random tests take the number of their examples from here. Cases that show again, in another way, what others show
are marked `long`.
"""

import os

LONG = os.environ.get("OCTAVO_LONG") == "1"
LONG_FACTOR = 4


def times(count: int) -> int:
    """So many examples, rounds or settings; four times as many in a long run."""
    return count * LONG_FACTOR if LONG else count
