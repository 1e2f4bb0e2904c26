"""From the changes of a step to the fewest events that say the same."""

from collections.abc import Iterable, Iterator

from octavo.kv.events.batches import AllBlocksCleared, BlockRemoved, BlockStored, Event
from octavo.kv.events.recorder import Change, Clearance, Removal
from octavo.kv.events.residency import Residency
from octavo.kv.events.words import MEDIUM_BY_TIER, GroupWords, short_hash
from octavo.kv.record import BlockRecord, Tier

MAX_BLOCKS_PER_EVENT = 1024
"""Longer runs are cut, so that nobody has to take in an event without bound."""

Key = tuple[Tier, int]
"""Tier and group: what one event can speak of."""
Run = list[BlockRecord] | list[Removal]
"""Consecutive blocks of a chain, or any removals; never empty."""


class Translator:
    """Turns changes into events, and keeps count of what is stored where after them."""

    def __init__(self, groups: tuple[GroupWords, ...], block_size: int) -> None:
        """
        Args:
            groups: [group] -> its description.
        """
        self.residency = Residency()
        """What is stored after all events so far."""
        self._groups = groups
        self._block_size = block_size

    def translate(self, changes: Iterable[Change]) -> list[Event]:
        """Events for changes. What happened in one tier to one group stays in its order, and so do blocks that follow
        each other in a chain, wherever they lie."""
        events: list[Event] = []
        for tier, part in _parts(changes):
            for event in self._events(tier, part):
                self.residency.apply(event)
                events.append(event)
        return events

    def _events(self, tier: Tier, part: Run | Clearance) -> Iterator[Event]:
        if isinstance(part, Clearance):
            return self._clear(tier)
        first = part[0]
        if isinstance(first, BlockRecord):
            return iter([self._stored(tier, part)])  # type: ignore[arg-type]  # a run is of one kind
        hashes = tuple(short_hash(removal.block_hash) for removal in part)
        return iter([BlockRemoved(block_hashes=hashes, medium=MEDIUM_BY_TIER[tier], group_idx=first.group)])

    def _stored(self, tier: Tier, run: list[BlockRecord]) -> BlockStored:
        first = run[0]
        words, salt = self._groups[first.group], first.cache_salt
        salted_root = salt is not None and first.parent_hash is None
        return BlockStored(
            block_hashes=tuple(short_hash(record.block_hash) for record in run),
            parent_block_hash=None if first.parent_hash is None else short_hash(first.parent_hash),
            token_ids=tuple(token for record in run for token in record.token_ids),
            block_size=self._block_size,
            medium=MEDIUM_BY_TIER[tier],
            extra_keys=((salt,), *[None] * (len(run) - 1)) if salted_root else None,
            group_idx=first.group,
            kv_cache_spec_kind=words.kind,
            kv_cache_spec_sliding_window=words.window,
            cache_salt=salt,
        )

    def _clear(self, tier: Tier) -> Iterator[Event]:
        """Of `AllBlocksCleared` some followers think that it spares other tiers than the first, some that it does not:
        it is said only where both come to the same."""
        medium = MEDIUM_BY_TIER[tier]
        if tier is Tier.DEVICE and self.residency.media <= {medium}:
            return iter([AllBlocksCleared()])
        return self.residency.removals(medium, MAX_BLOCKS_PER_EVENT)


def _parts(changes: Iterable[Change]) -> Iterator[tuple[Tier, Run | Clearance]]:
    """Changes gathered into runs, one growing per tier and group.

    Runs come in the order in which they began. So a block never comes before the one before it in its chain: either
    that one is in the same run, or its run began earlier.
    """
    growing: dict[Key, Run] = {}
    for tier, change in changes:
        if isinstance(change, Clearance):
            yield from _up_to(growing, None)
            yield tier, change
            continue
        key = tier, change.group
        run = growing.get(key)
        if run is not None and _continues(run, change):
            run.append(change)  # type: ignore[arg-type]  # of the same kind, as just checked
            continue
        if run is not None:
            yield from _up_to(growing, key)
        growing[key] = [change]  # type: ignore[assignment]  # a list of one kind
    yield from _up_to(growing, None)


def _continues(run: Run, change: BlockRecord | Removal) -> bool:
    last = run[-1]
    if len(run) == MAX_BLOCKS_PER_EVENT or type(last) is not type(change):
        return False
    return isinstance(change, Removal) or change.parent_hash == last.block_hash


def _up_to(growing: dict[Key, Run], last: Key | None) -> Iterator[tuple[Tier, Run]]:
    """Ends the runs that began before that of `last`, and that one; None: all."""
    while growing:
        key = next(iter(growing))
        yield key[0], growing.pop(key)
        if key == last:
            return
