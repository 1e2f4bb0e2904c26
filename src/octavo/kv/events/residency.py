"""What is stored where, as a stream of events tells it. The engine that sends a stream and those that follow it keep
the same object, and compare digests."""

from array import array
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from octavo.kv.events.batches import AllBlocksCleared, BlockRemoved, BlockStored, Digest, Event, Medium


class StoredBlock(NamedTuple):
    """What is known of a stored block beside its name."""

    parent: int | None
    """Name of the block before it."""
    tokens: bytes
    """Its token ids, see `pack_tokens`; empty where the event did not say."""
    cache_salt: str | None
    extra_keys: tuple[Any, ...] | None


def pack_tokens(token_ids: Iterable[int]) -> bytes:
    """Token ids as bytes, 4 each, for comparison within this process."""
    return array("I", token_ids).tobytes()


def unpack_tokens(packed: bytes) -> tuple[int, ...]:
    """The token ids of `pack_tokens`."""
    return tuple(array("I", packed))


class Shelf:
    """The stored blocks of one medium and one group."""

    def __init__(self, medium: Medium, group_idx: int | None) -> None:
        self.medium = medium
        self.group_idx = group_idx
        self.blocks: dict[int, StoredBlock] = {}
        """Name -> block."""
        self.xor_of_hashes = 0
        self.block_size = 0
        self.kind: str | None = None
        self.window: int | None = None

    def store(self, event: BlockStored) -> None:
        """Takes in blocks; those known already are renewed."""
        self.block_size, self.kind = event.block_size, event.kv_cache_spec_kind
        self.window = event.kv_cache_spec_sliding_window
        for name, block in _blocks_of(event):
            if name not in self.blocks:
                self.xor_of_hashes ^= name
            self.blocks[name] = block

    def remove(self, names: Iterable[int]) -> None:
        """Drops blocks; unknown ones are ignored."""
        for name in names:
            if self.blocks.pop(name, None) is not None:
                self.xor_of_hashes ^= name

    def digest(self) -> Digest:
        """The contents in short."""
        return Digest(
            medium=self.medium,
            group_idx=self.group_idx,
            num_blocks=len(self.blocks),
            xor_of_hashes=self.xor_of_hashes,
        )


def _blocks_of(event: BlockStored) -> Iterator[tuple[int, StoredBlock]]:
    """(name, block) for each block of an event. Where tokens and blocks do not add up, no tokens are known."""
    size, parent = event.block_size, event.parent_block_hash
    tokens = pack_tokens(event.token_ids) if len(event.token_ids) == size * len(event.block_hashes) else b""
    keys = event.extra_keys or (None,) * len(event.block_hashes)
    width = 4 * size if tokens else 0
    for index, (name, extra) in enumerate(zip(event.block_hashes, keys, strict=False)):
        yield name, StoredBlock(parent, tokens[index * width : (index + 1) * width], event.cache_salt, extra)
        parent = name


class Residency:
    """All stored blocks of one engine, by medium and group."""

    def __init__(self) -> None:
        self._shelves: dict[tuple[Medium, int | None], Shelf] = {}

    @property
    def num_blocks(self) -> int:
        """Stored blocks; one that lies in two media counts twice."""
        return sum(len(shelf.blocks) for shelf in self._shelves.values())

    @property
    def media(self) -> set[Medium]:
        """Where anything is stored."""
        return {shelf.medium for shelf in self._shelves.values() if shelf.blocks}

    @property
    def shelves(self) -> list[Shelf]:
        """One per medium and group that were ever heard of."""
        return list(self._shelves.values())

    def apply(self, event: Event) -> None:
        """Takes in what has happened."""
        match event:
            case BlockStored():
                self._shelf(event.medium, event.group_idx).store(event)
            case BlockRemoved():
                self._shelf(event.medium, event.group_idx).remove(event.block_hashes)
            case AllBlocksCleared():
                self._shelves.clear()

    def digests(self) -> tuple[Digest, ...]:
        """What is stored in short, see `Stamp.digests`."""
        digests = [shelf.digest() for shelf in self._shelves.values() if shelf.blocks]
        return tuple(sorted(digests, key=lambda digest: (digest.medium or "", digest.group_idx or 0)))

    def removals(self, medium: Medium, max_blocks: int) -> Iterator[BlockRemoved]:
        """Events that empty a medium, children before their parents."""
        for shelf in [shelf for shelf in self._shelves.values() if shelf.medium == medium]:
            names = list(reversed(shelf.blocks))
            for start in range(0, len(names), max_blocks):
                page = tuple(names[start : start + max_blocks])
                yield BlockRemoved(block_hashes=page, medium=medium, group_idx=shelf.group_idx)

    def stored_events(self, max_blocks: int) -> Iterator[BlockStored]:
        """Events that bring an empty residency to this one, parents before children, chains in one piece as far as they
        go. It is copied at once and handed out later: changes meanwhile do not count."""
        copies = [(shelf, dict(shelf.blocks)) for shelf in self._shelves.values()]
        return (event for shelf, blocks in copies for event in _chain_events(shelf, blocks, max_blocks))

    def _shelf(self, medium: Medium, group_idx: int | None) -> Shelf:
        key = medium, group_idx
        shelf = self._shelves.get(key)
        if shelf is None:
            shelf = self._shelves[key] = Shelf(medium, group_idx)
        return shelf


def _chain_events(shelf: Shelf, blocks: dict[int, StoredBlock], max_blocks: int) -> Iterator[BlockStored]:
    """From each block not told yet back to the first one that is told or missing, then forward:

    missing | told | 5 <- 6 <- 7 <- 8     one event with parent `told`
    """
    told: set[int] = set()
    for name in blocks:
        chain: list[int] = []
        step: int | None = name
        while step is not None and step in blocks and step not in told:
            chain.append(step)
            told.add(step)
            step = blocks[step].parent
        chain.reverse()
        for page in _pages(chain, blocks, max_blocks):
            yield _stored_event(shelf, page, blocks)


def _pages(chain: list[int], blocks: dict[int, StoredBlock], max_blocks: int) -> Iterator[list[int]]:
    """A chain in pieces of at most `max_blocks` blocks, all with known tokens or all without."""
    page: list[int] = []
    for name in chain:
        if page and (len(page) == max_blocks or bool(blocks[name].tokens) != bool(blocks[page[0]].tokens)):
            yield page
            page = []
        page.append(name)
    if page:
        yield page


def _stored_event(shelf: Shelf, names: list[int], blocks: dict[int, StoredBlock]) -> BlockStored:
    first = blocks[names[0]]
    extra_keys = tuple(blocks[name].extra_keys for name in names)
    return BlockStored(
        block_hashes=tuple(names),
        parent_block_hash=first.parent,
        token_ids=unpack_tokens(b"".join(blocks[name].tokens for name in names)),
        block_size=shelf.block_size,
        medium=shelf.medium,
        extra_keys=extra_keys if any(extra_keys) else None,
        group_idx=shelf.group_idx,
        kv_cache_spec_kind=shelf.kind,
        kv_cache_spec_sliding_window=shelf.window,
        cache_salt=first.cache_salt,
    )
