"""The laws that the bookkeeping of tiers must obey between any two calls."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from octavo.kv.load import Load, Transfer
from octavo.kv.record import Tier
from octavo.kv.tier_book import TierBook
from octavo.kv.transfer import BlockName, Direction


def check_books(
    books: Mapping[Tier, TierBook],
    transfers: Collection[Transfer],
    loading: Mapping[BlockName, Load],
    readers: Mapping[int, Sequence[Transfer]],
) -> None:
    """Verifies that tiers keep within their room and that transfers hold what they should and nothing else.

    Raises:
        AssertionError: naming the law.
    """
    for tier, book in books.items():
        _check_directory(book)
        mine = [each for each in transfers if each.plan.tier is tier]
        stores = [each for each in mine if each.plan.direction is Direction.STORE]
        coming = sorted((m.record.group, m.record.block_hash) for each in stores for m in each.plan.moves)
        _demand(coming == sorted(book.directory.coming()), "blocks on their way are those of stores under way")
        loading_bytes = sum(each.num_bytes for each in mine if each.plan.direction is Direction.LOAD)
        _demand(book.num_storing == len(coming), "blocks being stored are counted")
        _demand(book.loading_bytes == loading_bytes, "bytes being loaded are counted")
        _demand(not any(map(book.directory.knows, book.backlog)), "what is to be stored is not known in the tier")
    _check_loads(transfers, loading)
    for block_id, reading in readers.items():
        _demand(len(reading) > 0, "blocks without readers are not listed", block_id)
        for each in reading:
            listed = any(move.block_id == block_id for move in each.plan.moves)
            _demand(listed and each in transfers and not each.is_cancelled, "readers are stores under way", block_id)


def _check_directory(book: TierBook) -> None:
    directory = book.directory
    names = list(directory.names())
    _demand(directory.used_bytes == sum(map(directory.bytes_of, names)), "bytes in a tier are counted", book.tier)
    _demand(directory.used_bytes <= directory.capacity_bytes, "a tier keeps within its room", book.tier)
    _demand(directory.can_all_go(), "whatever may go is found when room is needed", book.tier)


def _check_loads(transfers: Collection[Transfer], loading: Mapping[BlockName, Load]) -> None:
    loads = {each.load for each in transfers if each.load is not None}
    _demand(set(loading.values()) == loads, "blocks being loaded are those of loads under way")
    expected = Counter((block.group, block.block_hash) for load in loads for block in load.missing)
    _demand(expected == Counter(dict.fromkeys(loading, 1)), "a block is loaded once at a time")
    for each in transfers:
        _demand(each.load is None or not each.is_cancelled, "a cancelled transfer is part of no load")
        if each.load is not None:
            _demand(each.load.open.get(each.plan.transfer_id) is each, "a load knows its transfers")


def _demand(holds: bool, law: str, *facts: object) -> None:
    if not holds:
        raise AssertionError(": ".join([law, *map(str, facts)]))
