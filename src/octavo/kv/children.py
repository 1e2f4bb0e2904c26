"""Matches that end inside a block: which cached block goes on most like a request does."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import attrgetter

from octavo.kv.blocks import Block

BITS_PER_TOKEN = 32
"""Of packed token ids."""

_tokens_of = attrgetter("tokens")


class Children:
    """Computed published blocks of one group, by the block before them.

    Siblings are kept in the order of their packed tokens. In such an order whatever shares most leading tokens with
    some other tokens stands right before or right behind the place of those, so a look-up is one bisection.

    A block's place is named by `Block.parent_key`: the hash of the block before it; for a first block the root of the
    chain and the request's salt, so that requests of different salts are never siblings.
    """

    def __init__(self) -> None:
        self._siblings: dict[bytes, list[Block]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._siblings.values()))

    def __iter__(self) -> Iterator[Block]:
        for siblings in self._siblings.values():
            yield from siblings

    def add(self, block: Block) -> None:
        """Takes in a block whose `parent_key` and `tokens` are set; no sibling has the same tokens."""
        siblings = self._siblings.setdefault(block.parent_key, [])
        insort(siblings, block, key=_tokens_of)

    def remove(self, block: Block) -> None:
        """Takes a block out again."""
        siblings = self._siblings[block.parent_key]
        place = bisect_left(siblings, block.tokens, key=_tokens_of)
        if siblings[place] is not block:
            raise RuntimeError(f"{block} is not among the children of its parent")
        del siblings[place]
        if not siblings:
            del self._siblings[block.parent_key]

    def closest(self, parent_key: bytes, tokens: bytes) -> tuple[Block, int] | None:
        """The child that shares most leading tokens with `tokens` (packed), and how many; None if none shares any."""
        siblings = self._siblings.get(parent_key)
        if siblings is None:
            return None
        place = bisect_left(siblings, tokens, key=_tokens_of)
        near = siblings[max(0, place - 1) : place + 1]
        best = max(near, key=lambda block: common_tokens(block.tokens, tokens))
        shared = common_tokens(best.tokens, tokens)
        return (best, shared) if shared else None

    def clear(self) -> None:
        """Forgets all blocks."""
        self._siblings.clear()


def common_tokens(first: bytes, second: bytes) -> int:
    """How many leading tokens two runs of packed (little-endian) token ids share."""
    length = min(len(first), len(second))
    differing = int.from_bytes(first[:length], "little") ^ int.from_bytes(second[:length], "little")
    if not differing:
        return length * 8 // BITS_PER_TOKEN
    lowest_bit = (differing & -differing).bit_length() - 1
    return lowest_bit // BITS_PER_TOKEN
