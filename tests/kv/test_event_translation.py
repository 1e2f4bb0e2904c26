"""From changes of a cache to events: few, in order, in vLLM's words."""

import random

from octavo.kv.events import AllBlocksCleared, BlockRemoved, BlockStored, Residency, Translator, group_words, short_hash
from octavo.kv.events.recorder import EventRecorder
from octavo.kv.events.translate import MAX_BLOCKS_PER_EVENT
from octavo.kv.record import Tier
from octavo.kv.spec import AttentionSpec, LatentSpec, RecurrentSpec
from tests.kv.event_world import GROUPS, SIZE, World, chain
from tests.scheduling.harness import make_layout

DEVICE, HOST, DISK = Tier.DEVICE, Tier.HOST, Tier.DISK


def names(records):
    return tuple(short_hash(record.block_hash) for record in records)


def translate(do) -> list:
    recorder = EventRecorder()
    do(recorder)
    return Translator(GROUPS, SIZE).translate(recorder.take())


def test_a_chain_stored_in_one_step_is_one_event() -> None:
    records = chain([1, 2, 3, 4, 5, 6])
    events = translate(lambda to: [to.stored(DEVICE, record) for record in records])
    assert events == [
        BlockStored(
            block_hashes=names(records),
            parent_block_hash=None,
            token_ids=(1, 2, 3, 4, 5, 6),
            block_size=SIZE,
            medium="GPU",
            group_idx=0,
            kv_cache_spec_kind="full_attention",
        )
    ]


def test_the_rest_of_a_chain_names_its_parent() -> None:
    first, *rest = chain([1, 2, 3, 4, 5, 6], salt="s")
    (event,) = translate(lambda to: [to.stored(DEVICE, record) for record in rest])
    assert event.parent_block_hash == short_hash(first.block_hash)
    assert (event.extra_keys, event.cache_salt) == (None, "s")


def test_the_salt_is_among_the_extra_keys_of_the_first_block() -> None:
    (event,) = translate(lambda to: [to.stored(DEVICE, record) for record in chain([1, 2, 3, 4], salt="s")])
    assert (event.extra_keys, event.cache_salt) == ((("s",), None), "s")


def test_media_and_kinds_have_vllms_names() -> None:
    def do(to):
        for tier in Tier:
            to.stored(tier, chain([1, 2], group=1)[0])

    events = translate(do)
    assert [event.medium for event in events] == ["GPU", "CPU", "STORAGE"]
    assert {(event.group_idx, event.kv_cache_spec_kind, event.kv_cache_spec_sliding_window) for event in events} == {
        (1, "sliding_window", 3)
    }


def test_kinds_of_layers() -> None:
    plain = {"num_kv_heads": 1, "head_dim": 4}
    layers = (
        AttentionSpec(**plain),
        AttentionSpec(**plain, window=8),
        AttentionSpec(**plain, chunk=8),
        LatentSpec(latent_dim=4, rope_dim=4),
        RecurrentSpec(state_bytes=8),
    )
    words = group_words(make_layout(8, layers=layers))
    assert words == (
        ("full_attention", None),
        ("sliding_window", 8),
        ("chunked_local_attention", None),
        ("mla_attention", None),
        ("mamba", None),
    )


def test_a_name_is_the_last_eight_bytes() -> None:
    assert short_hash(bytes(range(32))) == int.from_bytes(bytes(range(24, 32)), "big")


def test_groups_told_by_turns_are_one_event_each() -> None:
    pairs = list(zip(chain([1, 2, 3, 4]), chain([1, 2, 3, 4], group=1), strict=True))
    events = translate(lambda to: [to.stored(DEVICE, record) for pair in pairs for record in pair])
    assert [(event.group_idx, len(event.block_hashes)) for event in events] == [(0, 2), (1, 2)]


def test_what_is_stored_removed_and_stored_again_stays_in_order() -> None:
    (record,) = chain([1, 2])

    def do(to):
        to.stored(DEVICE, record)
        to.removed(DEVICE, 0, record.block_hash)
        to.stored(DEVICE, record)

    assert [type(event) for event in translate(do)] == [BlockStored, BlockRemoved, BlockStored]


def test_removals_are_gathered_and_long_runs_cut() -> None:
    records = chain([i % 7 for i in range(SIZE * (MAX_BLOCKS_PER_EVENT + 5))])

    def do(to):
        for record in records:
            to.stored(DEVICE, record)
        for record in reversed(records):
            to.removed(DEVICE, 0, record.block_hash)

    sizes = [(type(event), len(event.block_hashes)) for event in translate(do)]
    assert sizes == [(kind, size) for kind in (BlockStored, BlockRemoved) for size in (MAX_BLOCKS_PER_EVENT, 5)]


def test_clearing_says_all_is_gone_only_where_all_is_gone() -> None:
    """Followers do not agree on whether `AllBlocksCleared` spares tiers behind the first."""
    records = chain([1, 2, 3, 4])

    def fill(to, *tiers):
        for tier in tiers:
            for record in records:
                to.stored(tier, record)

    def only_device(to):
        fill(to, DEVICE)
        to.cleared(DEVICE)

    def beside_host(to):
        fill(to, DEVICE, HOST)
        to.cleared(DEVICE)

    def only_host(to):
        fill(to, HOST)
        to.cleared(HOST)

    gone = tuple(reversed(names(records)))
    assert translate(only_device)[-1] == AllBlocksCleared()
    assert translate(beside_host)[-1] == BlockRemoved(block_hashes=gone, medium="GPU", group_idx=0)
    assert translate(only_host)[-1] == BlockRemoved(block_hashes=gone, medium="CPU", group_idx=0)


def test_events_lead_any_follower_to_the_truth_and_so_do_those_of_a_snapshot() -> None:
    rng = random.Random(5)
    for _ in range(30):
        world, translator, follower = World(), Translator(GROUPS, SIZE), Residency()
        for _ in range(40):
            records = chain([rng.randrange(2) for _ in range(8)], group=rng.randrange(2), salt=rng.choice([None, "s"]))
            tier = rng.choice(list(Tier))
            for _ in range(rng.randrange(3)):
                world.remove(tier, rng.choice(records))
            for record in records[: rng.randrange(5)]:
                world.store(tier, record)
            if rng.random() < 0.05:
                world.clear(tier)
            if rng.random() < 0.5:
                for event in translator.translate(world.changes.take()):
                    follower.apply(event)
        for event in translator.translate(world.changes.take()):
            follower.apply(event)
        late = Residency()
        snapshot = list(translator.residency.stored_events(3))
        for event in snapshot:
            late.apply(event)
        for residency in (translator.residency, follower, late):
            blocks = {(s.medium, s.group_idx, name) for s in residency.shelves for name in s.blocks}
            assert blocks == world.held
            assert residency.digests() == translator.residency.digests()
        check_order(snapshot)
        assert contents(late) == contents(follower)


def check_order(snapshot) -> None:
    """Where a parent is among the stored, it comes before its children, and chains come in one piece, cut at 3."""
    seen: set[tuple[str, int, int]] = set()
    all_names = {(event.medium, event.group_idx, name) for event in snapshot for name in event.block_hashes}
    for event in snapshot:
        parent = event.medium, event.group_idx, event.parent_block_hash
        assert parent in seen or parent not in all_names
        assert len(event.block_hashes) <= 3 and len(event.token_ids) == SIZE * len(event.block_hashes)
        seen |= {(event.medium, event.group_idx, name) for name in event.block_hashes}


def contents(residency: Residency) -> dict:
    return {(s.medium, s.group_idx, name): block for s in residency.shelves for name, block in s.blocks.items()}


def test_a_digest_tells_contents_apart() -> None:
    one, other = Residency(), Residency()
    for residency, tokens in ((one, [1, 2, 3, 4]), (other, [1, 2, 3, 5])):
        for event in translate(lambda to, tokens=tokens: [to.stored(DEVICE, record) for record in chain(tokens)]):
            residency.apply(event)
    (digest,) = one.digests()
    assert (digest.medium, digest.group_idx, digest.num_blocks) == ("GPU", 0, 2)
    a, b = names(chain([1, 2, 3, 4]))
    assert digest.xor_of_hashes == a ^ b
    assert one.digests() != other.digests()
