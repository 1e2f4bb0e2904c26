"""Who holds which prefix: one feed per engine."""

from collections.abc import Sequence

from octavo.router.holdings import PrefixMatch
from octavo.router.kv_feed import MAX_BLOCKS, Exactness, KvFeed
from octavo.router.kv_messages import Message, Request


class KvDirectory:
    """What the engines hold, as far as their KV events tell. Pure: `KvEventsClient` carries the messages.

    Memory is bounded: per engine by `max_blocks` and by what a feed keeps while it waits for what is missing.
    """

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        """
        Args:
            max_blocks: most blocks of one engine; one that claims more is followed no longer.
        """
        self.feeds: dict[str, KvFeed] = {}
        """Engine -> what is known of it."""
        self._max_blocks = max_blocks

    def add(self, engine: str) -> None:
        """Begins to follow an engine, or anew."""
        self.feeds[engine] = KvFeed(self._max_blocks)

    def remove(self, engine: str) -> None:
        """Forgets an engine; unknown ones are ignored."""
        self.feeds.pop(engine, None)

    def receive(self, engine: str, message: Message, now_s: float) -> list[Request]:
        """See `KvFeed.receive`; what comes late from a removed engine is ignored."""
        feed = self.feeds.get(engine)
        return [] if feed is None else feed.receive(message, now_s)

    def tick(self, now_s: float) -> list[tuple[str, Request]]:
        """See `KvFeed.tick`: requests with the engines that they are for."""
        return [(engine, request) for engine, feed in self.feeds.items() for request in feed.tick(now_s)]

    def is_exact(self, engine: str, now_s: float) -> bool:
        """Whether what is known of an engine is what it held a moment ago, without doubt."""
        return engine in self.feeds and self.feeds[engine].exactness(now_s) is Exactness.EXACT

    def names_of(self, engine: str, token_ids: Sequence[int], cache_salt: str | None = None) -> list[int]:
        """Names of a prompt's leading blocks, as far as an engine holds any of them. Engines of equal fingerprint have
        the same names."""
        return self.feeds[engine].holdings.names_of(token_ids, cache_salt)

    def longest_prefix(self, engine: str, names: Sequence[int]) -> PrefixMatch:
        """How many leading blocks of a chain an engine need not compute, and where it has them. An engine goes on
        behind at most n - 1 tokens of a prompt, so of one whose every block it holds it computes the last again.

        Args:
            names: 64-bit names, from `names_of` or cut from the engine's own hashes with `short_hash`.
        """
        return self.feeds[engine].holdings.match(names)
