"""Engines on the scripted executor that publish KV events over loopback, and what they hold in truth."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from octavo.config import KVEventsConfig, SchedulerConfig
from octavo.engine.core import EngineCore
from octavo.engine.kv_publisher import KVPublisher
from octavo.engine.kv_sockets import bind_sockets
from octavo.execution.scripted import ScriptedExecutor
from octavo.kv.events import short_hash
from octavo.kv.manager import KVManager
from octavo.kv.spec import AttentionSpec
from octavo.router.kv_client import KvEventsClient
from octavo.router.kv_directory import KvDirectory
from octavo.router.kv_feed import KvFeed
from octavo.scheduling.scheduler import Scheduler
from tests.scheduling.harness import FULL, make_layout

ANY_PORT = "tcp://127.0.0.1:0"
LIMIT_S = 30
"""Longer than anything here takes; a test that comes so far fails."""


class PublishingEngine:
    """A core without a model that publishes on any free ports, or on those that it is told."""

    def __init__(
        self,
        *,
        endpoint: str = ANY_PORT,
        replay_endpoint: str | None = ANY_PORT,
        num_blocks: int = 24,
        layers: tuple[AttentionSpec, ...] = (FULL,),
        topic: str = "",
        form: str = "map",
        buffer_steps: int = 10_000,
        **scheduler: Any,
    ) -> None:
        config = KVEventsConfig(
            kv_events_endpoint=endpoint,
            kv_events_replay_endpoint=replay_endpoint,
            kv_events_topic=topic,
            kv_events_format=form,  # type: ignore[arg-type]
            kv_events_buffer_steps=buffer_steps,
        )
        layout = make_layout(num_blocks, layers=layers)
        sockets = bind_sockets(config)
        assert sockets is not None
        self.manager = KVManager(layout)
        self.publisher = KVPublisher(sockets, config, layout, "model")
        self.manager.observe(self.publisher.observer)
        limits = {"max_num_seqs": 8, "max_num_batched_tokens": 32, **scheduler}
        planner = Scheduler(SchedulerConfig(**limits), self.manager, 64)
        executor = ScriptedExecutor(layout, vocab_size=1000, max_in_flight=planner.max_in_flight)
        self.core = EngineCore(planner, executor, lambda: 0.0, self.publisher)
        self.info = self.publisher.info

    @property
    def held(self) -> frozenset[tuple[str, int, int]]:
        """(medium, group, name) of what its requests could find and whose bits are there."""
        return frozenset(
            ("GPU", group, short_hash(block.hash))
            for group, policy in enumerate(self.manager._groups)
            for block in policy.index
            if block.hash is not None and not block.in_flight
        )

    def run(self) -> None:
        """Steps until there is nothing to do."""
        while self.core.has_work:
            self.core.step()


@contextmanager
def followed(engine: PublishingEngine) -> Iterator[tuple[KvEventsClient, KvFeed]]:
    """A client that follows an engine, with its feed."""
    with KvEventsClient(KvDirectory()) as client:
        client.follow("e", engine.info.endpoint, engine.info.replay_endpoint)
        yield client, client.directory.feeds["e"]


def poll_until(client: KvEventsClient, done: Callable[[], bool]) -> None:
    """Polls a client until something is so."""
    end = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < end, "it never became so"
        client.poll(0.05)


def held_by(feed: KvFeed) -> frozenset[tuple[str | None, int | None, int]]:
    """(medium, group, name) of what a feed believes to be held."""
    shelves = feed.holdings.residency.shelves
    return frozenset((shelf.medium, shelf.group_idx, name) for shelf in shelves for name in shelf.blocks)
