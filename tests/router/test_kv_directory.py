"""Feeds in single steps, what is found in them, and what bounds them."""

from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest

from octavo.kv.events import BlockStored, EventBatch, EventStream, encode_batch, short_hash
from octavo.kv.events.stream import first_sequence
from octavo.kv.record import BlockRecord, Tier
from octavo.router import kv_feed
from octavo.router.holdings import NO_MATCH, PrefixMatch
from octavo.router.kv_directory import KvDirectory
from octavo.router.kv_feed import MAX_PATIENCE_S, PATIENCE_S, SILENCE_S, Exactness, KvFeed
from octavo.router.kv_messages import AskReplay, AskSnapshot, Live, Refused, Replayed, ReplayEnd, Request
from tests.kv.event_world import World, chain, make_stream
from tests.router.test_kv_feed_properties import answers, held_by, number

PROMPT = [1, 2, 3, 4, 5, 6, 7]


def live(frames: list[bytes]) -> Live:
    return Live(number(frames[1]), frames[2])


def store_all(world: World, tier: Tier, records: list[BlockRecord]) -> None:
    for record in records:
        world.store(tier, record)


class Pair:
    """An engine's stream and a feed without faults between them, but for those that a test makes."""

    def __init__(self) -> None:
        self.world = World()
        self.stream: EventStream = make_stream(first_seq=first_sequence(1e9), buffer_steps=4)
        self.feed = KvFeed()
        self.requests = self.feed.receive(live(self.stream.open(0.0)), 0.0)

    def step(self, do: Callable[[World], None]) -> Live:
        do(self.world)
        frames = self.stream.publish(self.world.changes.take(), 0.0)
        assert frames is not None
        return live(frames)

    def store(self, tokens: list[int], tier: Tier = Tier.DEVICE) -> Live:
        return self.step(lambda world: store_all(world, tier, chain(tokens)))

    def answer(self, request: Request) -> list[Request]:
        return [more for message in answers(self.stream, request) for more in self.feed.receive(message, 0.0)]


def test_a_follower_from_the_beginning_asks_for_nothing() -> None:
    pair = Pair()
    assert pair.requests == pair.feed.receive(pair.store(PROMPT), 0.0) == []
    assert pair.feed.exactness(0.0) is Exactness.EXACT and held_by(pair.feed) == pair.world.held


def test_one_that_joins_late_asks_for_all_and_goes_on_from_there() -> None:
    pair = Pair()
    pair.store(PROMPT)
    pair.feed = KvFeed()
    assert pair.feed.exactness(0.0) is Exactness.WAITING
    (request,) = pair.feed.receive(pair.store([8, 9]), 0.0)
    assert isinstance(request, AskSnapshot) and pair.feed.exactness(0.0) is Exactness.RECOVERING
    assert pair.answer(request) == []
    assert pair.feed.exactness(0.0) is Exactness.EXACT and held_by(pair.feed) == pair.world.held


def test_a_gap_is_filled_from_the_replay() -> None:
    pair = Pair()
    pair.store(PROMPT)  # lost
    (request,) = pair.feed.receive(pair.store([8, 9]), 0.0)
    assert request == AskReplay(1, first_sequence(1e9) + 1)
    assert pair.answer(request) == []
    assert pair.feed.exactness(0.0) is Exactness.EXACT and held_by(pair.feed) == pair.world.held


def test_a_gap_that_is_too_old_is_filled_from_a_snapshot() -> None:
    pair = Pair()
    for token in range(5):
        pair.store([9, token])  # lost; the stream keeps 4
    (request,) = pair.feed.receive(pair.store([8, 9]), 0.0)
    assert isinstance(request, AskReplay)
    (second,) = pair.answer(request)
    assert isinstance(second, AskSnapshot) and pair.answer(second) == []
    assert pair.feed.exactness(0.0) is Exactness.EXACT and held_by(pair.feed) == pair.world.held


def test_requests_without_answers_are_made_again_more_and_more_seldom_and_of_another_kind() -> None:
    pair = Pair()
    pair.store(PROMPT)
    made = pair.feed.receive(pair.store([8, 9]), 0.0)
    now_s, times = 0.0, [0.0]
    while len(made) < 9:
        now_s += 0.25
        asked = pair.feed.tick(now_s)
        made += asked
        times += [now_s] * len(asked)
    assert [type(request) for request in made] == [AskReplay] * 2 + [AskSnapshot] * 7
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits == [min(PATIENCE_S * 2**i, MAX_PATIENCE_S) for i in range(8)]
    assert len({request.request for request in made}) == len(made)


def test_a_state_that_differs_from_the_digest_is_not_kept() -> None:
    """An event that was lost inside the engine, say, or two blocks of one name."""
    pair = Pair()
    message = pair.store(PROMPT)
    raw = msgspec.msgpack.decode(message.payload)
    del raw[1][0]
    (request,) = pair.feed.receive(Live(message.seq, msgspec.msgpack.encode(raw)), 0.0) or pair.feed.receive(
        live(pair.stream.beat(2.0)), 0.0
    )
    assert isinstance(request, AskSnapshot) and pair.feed.num_drifts == 1
    assert pair.feed.exactness(0.0) is Exactness.RECOVERING
    assert pair.answer(request) == [] and held_by(pair.feed) == pair.world.held


def test_a_batch_that_nobody_can_read_makes_all_of_it_doubtful() -> None:
    pair = Pair()
    message = pair.store(PROMPT)
    (request,) = pair.feed.receive(Live(message.seq, b"\xc1"), 0.0)
    assert isinstance(request, AskSnapshot) and pair.feed.exactness(0.0) is Exactness.RECOVERING
    assert pair.answer(request) == [] and pair.feed.exactness(0.0) is Exactness.EXACT


def reborn(pair: Pair) -> EventStream:
    """The next life of an engine; its numbers are those that the one before has used, too."""
    stream = make_stream(epoch=b"2" * 16, first_seq=first_sequence(1e9))
    stream.open(0.0)
    for _ in range(4):
        stream.beat(0.0)
    return stream


def test_a_replay_of_another_life_is_not_taken_for_what_is_missing() -> None:
    pair = Pair()
    pair.store(PROMPT)
    (request,) = pair.feed.receive(pair.store([8, 9]), 0.0)
    pair.stream = reborn(pair)
    (second,) = pair.answer(request)
    assert isinstance(second, AskSnapshot) and pair.feed.exactness(0.0) is Exactness.RECOVERING


def test_a_snapshot_of_another_life_is_asked_for_again_when_its_batches_come() -> None:
    pair = Pair()
    pair.store(PROMPT)
    pair.feed = KvFeed()
    (request,) = pair.feed.receive(pair.store([8, 9]), 0.0)
    pair.stream = reborn(pair)
    assert pair.answer(request) == [] and pair.feed.exactness(0.0) is Exactness.RECOVERING
    (second,) = pair.feed.receive(live(pair.stream.beat(0.0)), 0.0)
    assert pair.answer(second) == []
    assert pair.feed.exactness(0.0) is Exactness.EXACT and held_by(pair.feed) == frozenset()


def test_a_silent_engine_is_not_exact() -> None:
    pair = Pair()
    assert pair.feed.exactness(SILENCE_S) is Exactness.EXACT
    assert pair.feed.exactness(SILENCE_S + 0.1) is Exactness.SILENT
    pair.feed.receive(live(pair.stream.beat(0.0)), SILENCE_S + 1)
    assert pair.feed.exactness(SILENCE_S + 1) is Exactness.EXACT


def test_where_nobody_answers_it_becomes_exact_when_all_is_cleared() -> None:
    pair = Pair()
    pair.store(PROMPT)
    (request,) = pair.feed.receive(pair.store([8, 9]), 0.0)
    assert pair.feed.receive(Refused(request.request), 0.0) == pair.feed.tick(100.0) == []
    assert pair.feed.exactness(0.0) is Exactness.RECOVERING
    pair.stream = make_stream(epoch=b"2" * 16, first_seq=first_sequence(2e9))
    assert pair.feed.receive(live(pair.stream.open(0.0)), 0.0) == []
    assert pair.feed.exactness(0.0) is Exactness.EXACT and held_by(pair.feed) == frozenset()


def test_an_engine_that_claims_too_much_is_followed_no_longer() -> None:
    pair = Pair()
    pair.feed = KvFeed(max_blocks=2)
    pair.feed.receive(live(pair.stream.open(0.0)), 0.0)
    assert pair.feed.receive(pair.store(PROMPT), 0.0) == pair.feed.receive(pair.store([8, 9]), 0.0) == []
    assert pair.feed.exactness(0.0) is Exactness.OVERFULL and held_by(pair.feed) == frozenset()


def test_batches_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_feed, "MAX_HELD_BATCHES", 5)
    pair = Pair()
    pair.store(PROMPT)
    for token in range(20):
        pair.feed.receive(pair.store([9, token]), 0.0)
        assert len(pair.feed._held) <= 5
    (request,) = pair.feed.tick(100.0)
    assert isinstance(request, AskSnapshot) and pair.answer(request) == []
    assert pair.feed.exactness(0.0) is Exactness.EXACT and held_by(pair.feed) == pair.world.held


# ---- engines that send no epochs


def plain_batch(*tokens: int) -> bytes:
    """One block, as vLLM would tell of it."""
    (record,) = chain(list(tokens))
    stored = BlockStored(
        block_hashes=(short_hash(record.block_hash),),
        parent_block_hash=None,
        token_ids=tokens,
        block_size=2,
        medium="GPU",
    )
    return encode_batch(EventBatch(ts=0.0, events=(stored,)), "map")


def test_a_stream_without_epochs_is_never_proven() -> None:
    feed = KvFeed()
    assert feed.receive(Live(0, plain_batch(1, 2)), 0.0) == feed.receive(Live(1, plain_batch(3, 4)), 0.0) == []
    assert feed.exactness(0.0) is Exactness.UNPROVEN and len(held_by(feed)) == 2


def test_without_epochs_the_replay_from_the_beginning_helps_who_joins_late() -> None:
    feed = KvFeed()
    (request,) = feed.receive(Live(2, plain_batch(5, 6)), 0.0)
    assert request == AskReplay(1, 0)
    for message in (Replayed(1, 0, plain_batch(1, 2)), Replayed(1, 1, plain_batch(3, 4)), ReplayEnd(1)):
        assert feed.receive(message, 0.0) == []
    assert feed.exactness(0.0) is Exactness.UNPROVEN and len(held_by(feed)) == 3


@pytest.mark.parametrize("end", [ReplayEnd(1), Refused(1)])
def test_without_epochs_a_gap_that_stays_empties_the_holdings(end: ReplayEnd | Refused) -> None:
    feed = KvFeed()
    feed.receive(Live(0, plain_batch(1, 2)), 0.0)
    assert feed.receive(Live(2, plain_batch(5, 6)), 0.0) == [AskReplay(1, 1)]
    assert feed.receive(end, 0.0) == []
    assert feed.exactness(0.0) is Exactness.UNPROVEN and len(held_by(feed)) == 1


def test_without_epochs_numbers_that_go_back_mean_a_new_life() -> None:
    feed = KvFeed()
    feed.receive(Live(0, plain_batch(1, 2)), 0.0)
    feed.receive(Live(1, plain_batch(3, 4)), 0.0)
    assert feed.receive(Live(0, plain_batch(5, 6)), 0.0) == []
    assert len(held_by(feed)) == 1


def test_without_epochs_an_answer_that_comes_too_late_is_not_taken_for_that_to_a_new_request() -> None:
    feed = KvFeed()
    feed.receive(Live(0, plain_batch(1, 2)), 0.0)
    assert feed.receive(Live(2, plain_batch(3, 4)), 0.0) == [AskReplay(1, 1)]
    feed.receive(Live(0, plain_batch(5, 6)), 0.0)
    assert feed.receive(Live(2, plain_batch(7, 8)), 0.0) == [AskReplay(2, 1)]
    for late in (Replayed(1, 1, plain_batch(9, 9)), ReplayEnd(1)):
        assert feed.receive(late, 0.0) == []
    assert feed.exactness(0.0) is Exactness.RECOVERING and len(held_by(feed)) == 1


# ---- what is found


def directory_of(pair: Pair) -> KvDirectory:
    directory = KvDirectory()
    directory.feeds["e"] = pair.feed
    return directory


def test_prefixes_are_found_by_tokens_and_by_names() -> None:
    pair = Pair()
    pair.feed.receive(pair.store(PROMPT), 0.0)
    pair.feed.receive(pair.store([1, 2, 9, 9]), 0.0)
    directory = directory_of(pair)
    names = [short_hash(record.block_hash) for record in chain(PROMPT)]
    assert directory.names_of("e", PROMPT) == names
    assert directory.names_of("e", [*PROMPT[:4], 0, 0]) == names[:2]
    assert (
        directory.names_of("e", [2, 1]) == directory.names_of("e", PROMPT, "salt") == directory.names_of("e", [1]) == []
    )
    assert directory.longest_prefix("e", names) == PrefixMatch(num_blocks=3, blocks_by_medium={"GPU": 3})
    assert directory.longest_prefix("e", [*names[:1], 77]).num_blocks == 1
    assert directory.is_exact("e", 0.0) and not directory.is_exact("unknown", 0.0)


def test_salted_prompts_find_their_own() -> None:
    pair = Pair()
    pair.feed.receive(pair.step(lambda world: store_all(world, Tier.DEVICE, chain(PROMPT, salt="s"))), 0.0)
    directory = directory_of(pair)
    assert len(directory.names_of("e", PROMPT, "s")) == 3 and directory.names_of("e", PROMPT) == []


def test_a_block_counts_for_the_fastest_medium_that_has_it() -> None:
    pair = Pair()
    pair.feed.receive(pair.store(PROMPT, Tier.DISK), 0.0)
    pair.feed.receive(pair.store(PROMPT[:4], Tier.HOST), 0.0)
    pair.feed.receive(pair.store(PROMPT[:2]), 0.0)
    directory = directory_of(pair)
    match = directory.longest_prefix("e", directory.names_of("e", PROMPT))
    assert match == PrefixMatch(num_blocks=3, blocks_by_medium={"GPU": 1, "CPU": 1, "STORAGE": 1})


def test_a_block_is_found_as_long_as_any_medium_has_it() -> None:
    pair = Pair()
    (record, *_) = chain(PROMPT)
    for tier in (Tier.DEVICE, Tier.DISK):
        pair.feed.receive(pair.store(PROMPT[:2], tier), 0.0)
    directory = directory_of(pair)
    pair.feed.receive(pair.step(lambda world: world.remove(Tier.DEVICE, record)), 0.0)
    assert directory.names_of("e", PROMPT) == [short_hash(record.block_hash)]
    pair.feed.receive(pair.step(lambda world: world.remove(Tier.DISK, record)), 0.0)
    assert directory.names_of("e", PROMPT) == [] and not pair.feed.holdings._name_by_place


def test_layers_with_a_window_need_the_blocks_that_reach_into_it() -> None:
    """Group 1 sees 3 tokens of blocks of 2: behind block k it needs block k - 1, and k only."""
    pair = Pair()
    whole, windowed = chain([*range(8)]), chain([*range(8)], group=1)
    stored = [*whole, windowed[1], windowed[3]]
    pair.feed.receive(pair.step(lambda world: store_all(world, Tier.DEVICE, stored)), 0.0)
    directory = directory_of(pair)
    names = directory.names_of("e", [*range(8)])
    assert len(names) == 4
    assert [directory.longest_prefix("e", names[:k]).num_blocks for k in range(5)] == [0, 0, 2, 2, 4]


def test_nothing_is_found_in_an_engine_that_has_said_nothing() -> None:
    directory = KvDirectory()
    directory.add("e")
    assert directory.names_of("e", PROMPT) == [] and directory.longest_prefix("e", [1]) == NO_MATCH
    directory.remove("e")
    assert directory.receive("e", Live(0, b""), 0.0) == directory.tick(0.0) == []
