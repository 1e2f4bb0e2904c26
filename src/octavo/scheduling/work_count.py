"""What steps computed for a request, counted so that a program can be priced with it: exactly, whatever the batch."""

from collections.abc import Sequence

from octavo.request.account import WorkDone
from octavo.visible_pairs import visible_pairs

Reaches = Sequence[int | None]
"""For each kind of layer how many tokens back a position sees, itself included; None: all."""


class WorkCount:
    """The steps of one phase. What a position reads and sees depends on its place alone, so steps of one token each at
    places in a row are counted when the row ends."""

    __slots__ = ("_reaches", "done")

    def __init__(self, reaches: Reaches) -> None:
        self._reaches = reaches
        self.done = WorkDone(num_pairs=[0] * len(reaches), num_read=[0] * len(reaches))

    def add(self, num_tokens: int, context: int, num_sampled: int, sign: int = 1) -> None:
        """Counts rows at the places `[context - num_tokens, context)`; with `sign` -1 takes them back."""
        done = self.done
        done.num_tokens += sign * num_tokens
        done.num_sampled += sign * num_sampled
        for place, reach in enumerate(self._reaches):
            done.num_pairs[place] += sign * visible_pairs(num_tokens, context, reach)
            done.num_read[place] += sign * (context if reach is None else min(context, num_tokens - 1 + reach))

    def add_row(self, start: int, end: int) -> None:
        """Counts steps of one token each, which was sampled, at the places `[start, end)`: each reads what it sees."""
        done, count = self.done, end - start
        done.num_tokens += count
        done.num_sampled += count
        for place, reach in enumerate(self._reaches):
            seen = visible_pairs(count, end, reach)
            done.num_pairs[place] += seen
            done.num_read[place] += seen
