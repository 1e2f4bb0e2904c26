"""What lies behind the device pool is told, too: host memory and disk, and on disk what an earlier life has left."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from octavo.config import EngineConfig
from octavo.engine.build import build_core
from octavo.engine.core import EngineCore
from octavo.hub import resolve
from octavo.kv.events import short_hash
from octavo.kv.events.words import MEDIUM_BY_TIER
from octavo.router.kv_client import KvEventsClient
from octavo.router.kv_directory import KvDirectory
from octavo.router.kv_feed import KvFeed
from tests.engine.following import ANY_PORT, LIMIT_S, held_by
from tests.scheduling.harness import make_request

Held = frozenset[tuple[str | None, int | None, int]]


@contextmanager
def followed_core(model: str, folder: Path) -> Iterator[tuple[EngineCore, KvEventsClient, KvFeed]]:
    """A core with little room on the device, somewhat more in host memory and much on disk, and its follower."""
    settings: dict[str, object] = {
        "model": model,
        "threads": 1,
        "num_kv_blocks": 14,
        "max_model_len": 128,
        "kv_host_memory_bytes": 80_000,
        "kv_disk_path": str(folder),
        "kv_disk_size_bytes": 10_000_000,
        "kv_events_endpoint": ANY_PORT,
        "kv_events_replay_endpoint": ANY_PORT,
    }
    config = EngineConfig.from_fields(settings)
    core, info = build_core(config, resolve(model), time.monotonic)
    assert info.kv_events is not None
    with KvEventsClient(KvDirectory()) as client:
        client.follow("e", info.kv_events.endpoint, info.kv_events.replay_endpoint)
        yield core, client, client.directory.feeds["e"]
    core.close()


def truth(core: EngineCore) -> Held:
    """(medium, group, name) of all that can be found now."""
    manager, tiers = core._scheduler._manager, core._scheduler._tiers
    assert tiers is not None
    on_device = {
        ("GPU", group, short_hash(block.hash))
        for group, policy in enumerate(manager._groups)
        for block in policy.index
        if block.hash is not None and not block.in_flight
    }
    behind = {
        (MEDIUM_BY_TIER[tier], record.group, short_hash(record.block_hash))
        for tier, book in tiers._books.items()
        for record in book.directory.records()
    }
    return frozenset(on_device | behind)


def step_until_known(core: EngineCore, client: KvEventsClient, feed: KvFeed) -> None:
    """Steps, which takes in what the stores report, until the follower knows all of it, without doubt."""
    end = time.monotonic() + LIMIT_S
    while not client.directory.is_exact("e", time.monotonic()) or held_by(feed) != truth(core):
        assert time.monotonic() < end, "the follower never came to know it"
        core.step()
        client.poll(0.02)


def media(feed: KvFeed) -> set[str | None]:
    return {medium for medium, _, _ in held_by(feed)}


def test_all_tiers_are_followed_and_what_is_left_on_disk_is_told_at_once(tiny_model: str, tmp_path: Path) -> None:
    rng = random.Random(4)
    shared = [rng.randrange(200) for _ in range(48)]
    with followed_core(tiny_model, tmp_path) as (core, client, feed):
        for i in range(12):
            own = [rng.randrange(200) for _ in range(rng.randrange(10, 70))]
            core.add(make_request(str(i), shared[: rng.choice([0, 32, 48])] + own, max_tokens=4))
            while core.has_work:
                core.step()
                client.poll(0)
            step_until_known(core, client, feed)
        assert media(feed) == {"GPU", "CPU", "STORAGE"} and feed.num_drifts == 0
    with followed_core(tiny_model, tmp_path) as (core, client, feed):
        end = time.monotonic() + LIMIT_S
        while not client.directory.is_exact("e", time.monotonic()):
            assert time.monotonic() < end
            client.poll(0.05)
        assert held_by(feed) == truth(core) and media(feed) == {"STORAGE"} and len(held_by(feed)) > 20
        found = client.directory.longest_prefix("e", client.directory.names_of("e", shared))
        assert found.blocks_by_medium == {"STORAGE": 3}
        assert core.reset_prefix_cache()
        step_until_known(core, client, feed)
        assert not held_by(feed)
