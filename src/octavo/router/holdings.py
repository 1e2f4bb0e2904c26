"""What one engine holds, and how much of a prompt that is."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from octavo.kv.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Event,
    Medium,
    Residency,
    Shelf,
    StoredBlock,
    pack_tokens,
)

RANK_BY_MEDIUM: dict[Medium, int] = {None: 0, "GPU": 0, "CPU": 1, "CPU_PINNED": 1, "STORAGE": 2, "DISK": 2}
"""How far from the kernels a medium is, in the words of vLLM and SGLang; unknown ones are furthest."""
FARTHEST = 3
NEEDS_ALL = frozenset({None, "full_attention", "mla_attention", "sink_full_attention"})
"""Kinds of layers that need every position before the next one."""

TreeKey = tuple[int | None, str | None, bytes]


@dataclass(frozen=True, kw_only=True)
class PrefixMatch:
    """How much of a prompt an engine need not compute."""

    num_blocks: int
    blocks_by_medium: dict[str, int]
    """The same by the fastest medium that holds each."""


NO_MATCH = PrefixMatch(num_blocks=0, blocks_by_medium={})


class Holdings:
    """Stored blocks, found by their names or by the tokens that lead to them."""

    def __init__(self) -> None:
        self.residency = Residency()
        self._name_by_place: dict[TreeKey, int] = {}
        """(name of the block before, salt of a first block, tokens) -> name of the block."""

    def apply(self, events: Iterable[Event]) -> None:
        """Takes in what has happened."""
        for event in events:
            gone = self._blocks(event.block_hashes) if isinstance(event, BlockRemoved) else {}
            self.residency.apply(event)
            match event:
                case BlockStored():
                    for name, block in self._blocks(event.block_hashes).items():
                        self._name_by_place[_place(block)] = name
                case BlockRemoved():
                    self._forget(gone)
                case AllBlocksCleared():
                    self._name_by_place.clear()

    def names_of(self, token_ids: Sequence[int], cache_salt: str | None = None) -> list[int]:
        """Names of the leading blocks of a prompt, as far as they are held anywhere in this engine."""
        shelves = self.residency.shelves
        if not shelves:
            return []
        names: list[int] = []
        packed, width = pack_tokens(token_ids), 4 * shelves[0].block_size
        for start in range(0, len(packed) - width + 1, width):
            place = (names[-1], None) if names else (None, cache_salt)
            name = self._name_by_place.get((*place, packed[start : start + width]))
            if name is None:
                break
            names.append(name)
        return names

    def match(self, names: Sequence[int]) -> PrefixMatch:
        """How many leading blocks of a chain can be gone on from: all groups of layers must hold what they need of
        them, wherever it lies."""
        groups = self._groups()
        if not groups:
            return NO_MATCH
        agreed = len(names)
        while True:
            before = agreed
            for shelves in groups:
                agreed = _accept(shelves, names, agreed)
            if agreed == before:
                return PrefixMatch(num_blocks=agreed, blocks_by_medium=_count(groups[0], names[:agreed]))

    def _groups(self) -> list[list[Shelf]]:
        """Shelves by group, fastest medium first; groups that need all blocks come first."""
        by_group: dict[int | None, list[Shelf]] = {}
        for shelf in sorted(self.residency.shelves, key=_rank):
            by_group.setdefault(shelf.group_idx, []).append(shelf)
        return sorted(by_group.values(), key=lambda shelves: shelves[0].kind not in NEEDS_ALL)

    def _blocks(self, names: Iterable[int]) -> dict[int, StoredBlock]:
        """Those that are held anywhere and whose tokens are known."""
        shelves = self.residency.shelves
        held = {name: shelf.blocks[name] for name in names for shelf in shelves if name in shelf.blocks}
        return {name: block for name, block in held.items() if block.tokens}

    def _forget(self, gone: dict[int, StoredBlock]) -> None:
        """Blocks that no shelf holds any more cannot be found by their tokens either."""
        shelves = self.residency.shelves
        for name, block in gone.items():
            place = _place(block)
            if self._name_by_place.get(place) == name and not any(name in shelf.blocks for shelf in shelves):
                del self._name_by_place[place]


def _place(block: StoredBlock) -> TreeKey:
    if block.parent is not None:
        return block.parent, None, block.tokens
    salt = block.cache_salt or next((key for key in block.extra_keys or () if isinstance(key, str)), None)
    return None, salt, block.tokens


def _rank(shelf: Shelf) -> int:
    return RANK_BY_MEDIUM.get(shelf.medium, FARTHEST)


def _holder(shelves: list[Shelf], name: int) -> Shelf | None:
    return next((shelf for shelf in shelves if name in shelf.blocks), None)


def _accept(shelves: list[Shelf], names: Sequence[int], limit: int) -> int:
    """Largest number of blocks, at most `limit`, behind which this group can go on.

    Layers that see but a window need the blocks that reach into it; where one of those is missing, every border behind
    it is out, so the border before it is tried next.
    """
    if shelves[0].kind in NEEDS_ALL:
        return next((i for i in range(limit) if _holder(shelves, names[i]) is None), limit)
    border = limit
    while border:
        run = range(_first_needed(shelves[0], border), border)
        missing = next((i for i in run if _holder(shelves, names[i]) is None), None)
        if missing is None:
            return border
        border = missing
    return 0


def _first_needed(shelf: Shelf, border: int) -> int:
    """First block that a token behind `border` blocks needs; of layers that do not say, only the last one."""
    if shelf.window is None:
        return border - 1
    return max(0, border * shelf.block_size - shelf.window + 1) // shelf.block_size


def _count(shelves: list[Shelf], names: Sequence[int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        holder = _holder(shelves, name)
        if holder is not None:
            medium = holder.medium or "GPU"
            counts[medium] = counts.get(medium, 0) + 1
    return counts
