"""One engine's event stream: numbers batches, keeps the last ones for replay, and answers who has missed some.

    PUB       [topic] [sequence number, 8 bytes, big-endian] [batch]
    ROUTER    replay     ask ["", sequence number]   get ["", topic, number, batch] for each batch from there on that is
                                                     kept, then ["", "", -1, ""]                             (as vLLM)
              snapshot   ask ["", "snapshot"]        get ["", number, epoch, batch, batch, ...]: everything that is
                                                     stored behind the batch of that number; apply the next ones to it

Pure: sockets, threads and the clock are the caller's.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from octavo.kv.events.batches import AllBlocksCleared, BlockStored, Event, EventBatch, Stamp
from octavo.kv.events.codec import EventFormat, encode_batch
from octavo.kv.events.recorder import Change
from octavo.kv.events.translate import MAX_BLOCKS_PER_EVENT, Translator

Frames = list[bytes]
Reply = Iterator[Frames | None]
"""Messages to send to one requester, without the empty frame in front; None where it is a good moment to do something
else."""

SNAPSHOT_REQUEST = b"snapshot"
END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)
DIGEST_INTERVAL_S = 1.0
"""At least so far apart are batches that say what is stored in all."""
SEQUENCES_PER_MS = 1024
EPOCH_BYTES = 16
BLOCKS_PER_PAGE = 1024
"""Blocks in one batch of a snapshot, less than twice as many: making it takes a millisecond or so."""


def first_sequence(now_s: float) -> int:
    """The first sequence number of an engine that starts now, seconds since 1970.

    Not 0: a follower that does not know epochs would take the batches of a restarted engine for old ones, or for a
    continuation. So numbers go on where no earlier engine can have come, at a thousand batches per millisecond.
    """
    return int(now_s * 1000) * SEQUENCES_PER_MS


class EventStream:
    """Numbers, stamps and keeps batches; says what is stored."""

    def __init__(
        self,
        translator: Translator,
        *,
        epoch: bytes,
        first_seq: int,
        topic: bytes = b"",
        form: EventFormat = "map",
        buffer_steps: int = 10_000,
        rank: int = 0,
    ) -> None:
        """
        Args:
            translator: a new one.
            epoch: `EPOCH_BYTES` random bytes, other ones after every start.
            first_seq: number of the first batch.
            buffer_steps: batches kept for replay.
            rank: data-parallel rank.
        """
        self.epoch = epoch
        self._translator = translator
        self._next_seq = first_seq
        self._topic = topic
        self._form = form
        self._rank = rank
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=buffer_steps)
        self._digest_s = float("-inf")

    def open(self, now_s: float) -> Frames:
        """The first message: whatever was known of this address before is gone. `now_s`: seconds since 1970."""
        return self._message([AllBlocksCleared()], now_s, with_digest=True)

    def publish(self, changes: Iterable[Change], now_s: float) -> Frames | None:
        """The message that tells of changes; None if they come to nothing."""
        events = self._translator.translate(changes)
        if not events:
            return None
        return self._message(events, now_s, with_digest=now_s - self._digest_s >= DIGEST_INTERVAL_S)

    def beat(self, now_s: float) -> Frames:
        """A message without events, for quiet times: who misses its number has missed something."""
        return self._message([], now_s, with_digest=True)

    def answer(self, request: bytes, now_s: float) -> Reply:
        """What to send to a requester; nothing for what is no request."""
        if request == SNAPSHOT_REQUEST:
            return self._snapshot(now_s)
        if len(request) == len(END_OF_REPLAY):
            return self._replay(int.from_bytes(request, "big"))
        return iter(())

    def _message(self, events: list[Event], now_s: float, *, with_digest: bool) -> Frames:
        seq = self._next_seq
        self._next_seq += 1
        payload = self._encode(events, now_s, with_digest)
        if with_digest:
            self._digest_s = now_s
        self._kept.append((seq, payload))
        return [self._topic, seq.to_bytes(8, "big"), payload]

    def _encode(self, events: Iterable[Event], now_s: float, with_digest: bool) -> bytes:
        digests = self._translator.residency.digests() if with_digest else None
        stamp = Stamp(epoch=self.epoch, digests=digests)
        batch = EventBatch(ts=now_s, events=tuple(events), data_parallel_rank=self._rank, stamp=stamp)
        return encode_batch(batch, self._form)

    def _replay(self, start: int) -> Reply:
        """Batches that are kept when it begins."""
        batches = [kept for kept in self._kept if kept[0] >= start]
        return self._replay_messages(batches)

    def _replay_messages(self, batches: list[tuple[int, bytes]]) -> Reply:
        for seq, payload in batches:
            yield [self._topic, seq.to_bytes(8, "big"), payload]
        yield [b"", END_OF_REPLAY, b""]

    def _snapshot(self, now_s: float) -> Reply:
        """State and number are taken at once; the message is made bit by bit. One message, so that it arrives whole or
        not at all; its last batch bears the digest of the state."""
        cut = (self._next_seq - 1).to_bytes(8, "big")
        last = self._encode([], now_s, with_digest=True)
        return self._snapshot_message(cut, self._translator.residency.stored_events(MAX_BLOCKS_PER_EVENT), last, now_s)

    def _snapshot_message(self, cut: bytes, events: Iterator[BlockStored], last: bytes, now_s: float) -> Reply:
        pages: Frames = []
        for page in _pages(events):
            pages.append(self._encode(page, now_s, with_digest=False))
            yield None
        yield [cut, self.epoch, *pages, last]


def _pages(events: Iterator[BlockStored]) -> Iterator[list[Event]]:
    page: list[Event] = []
    num_blocks = 0
    for event in events:
        page.append(event)
        num_blocks += len(event.block_hashes)
        if num_blocks >= BLOCKS_PER_PAGE:
            yield page
            page, num_blocks = [], 0
    if page:
        yield page
