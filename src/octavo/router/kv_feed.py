"""Follows the KV events of one engine: knows what it holds, and knows when it does not know.

A pure state machine: messages and the time go in, requests come out; what carries them is the caller's.

    WAITING      no batch has come yet
    EXACT        what is held is what the engine held behind batch `seq` of `epoch`, and no later batch is known of
    UNPROVEN     no gap was seen, but the engine sends no epochs (vLLM, SGLang): a restart may have gone unnoticed
    RECOVERING   a batch is missing, or the state was wrong: asked for a replay, or for all that is stored
    SILENT       nothing has come for too long, not even a heartbeat
    OVERFULL     it claims more blocks than anybody wants to remember
"""

from enum import StrEnum
from itertools import count

from octavo.kv.events import AllBlocksCleared, EventBatch, MalformedBatchError, decode_batch
from octavo.router.holdings import Holdings
from octavo.router.kv_messages import (
    AskReplay,
    AskSnapshot,
    Live,
    Message,
    Refused,
    Replayed,
    ReplayEnd,
    Request,
    Snapshot,
)

MAX_HELD_BATCHES = 4096
"""Batches that are kept while those before them are awaited."""
MAX_BLOCKS = 4_000_000
"""Blocks of one engine, a block in two media counted twice; about 1 GB here."""
PATIENCE_S = 2.0
"""A request not answered by then is lost, and made again."""
MAX_PATIENCE_S = 30.0
"""Patience doubles with each try, up to this."""
MAX_REPLAYS = 2
"""Replays in vain before all that is stored is asked for."""
SILENCE_S = 6.0
"""Three heartbeats."""


class Exactness(StrEnum):
    """See the module."""

    WAITING = "waiting"
    EXACT = "exact"
    UNPROVEN = "unproven"
    RECOVERING = "recovering"
    SILENT = "silent"
    OVERFULL = "overfull"


class KvFeed:
    """What one engine holds, as far as its events tell."""

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self.holdings = Holdings()
        self.seq: int | None = None
        """Number of the last batch taken in; None: `holdings` are no state that the engine was ever in."""
        self.epoch: bytes | None = None
        """The engine's, as of the last live batch."""
        self.num_recoveries = 0
        """Requests made so far."""
        self.num_drifts = 0
        """How often an engine's digest told of another state than its batches had."""
        self._max_blocks = max_blocks
        self._held: dict[int, EventBatch] = {}
        """Number -> batch that came too early; all of `epoch`."""
        self._last_live: int | None = None
        self._heard_s = float("-inf")
        self._request: Request | None = None
        """Made and not answered."""
        self._deadline_s = float("inf")
        self._num_tries = 0
        self._replay_is_vain = False
        """The engine does not keep the batches any more that are missing, or does not say."""
        self._nobody_answers = False
        self._is_overfull = False
        self._ids = count(1)

    def exactness(self, now_s: float) -> Exactness:
        """What `holdings` are worth."""
        if self._is_overfull:
            return Exactness.OVERFULL
        if self._last_live is None:
            return Exactness.WAITING
        if now_s - self._heard_s > SILENCE_S:
            return Exactness.SILENT
        if self.seq is None or self.seq < self._last_live:
            return Exactness.RECOVERING
        return Exactness.UNPROVEN if self.epoch is None else Exactness.EXACT

    def receive(self, message: Message, now_s: float) -> list[Request]:
        """Takes a message in.

        Args:
            now_s: seconds on any clock that never goes back.

        Returns:
            Requests to make; at most one.
        """
        if isinstance(message, Live):
            self._heard_s = now_s
            self._take_live(message)
        elif self._request is not None and message.request == self._request.request:
            self._take_answer(message, now_s)
        return self._ask(now_s)

    def tick(self, now_s: float) -> list[Request]:
        """To be called now and then, about once a second: makes requests again whose answers do not come."""
        if self._request is not None and now_s >= self._deadline_s:
            self._num_tries += 1
            self._replay_is_vain |= self._num_tries >= MAX_REPLAYS
            self._request = None
        return self._ask(now_s)

    # ---- live batches

    def _take_live(self, message: Live) -> None:
        batch = _decoded(message.payload)
        epoch = self.epoch if batch is None else _epoch(batch)
        starts_over = epoch is None and self._last_live is not None and message.seq <= self._last_live
        if self._last_live is None or epoch != self.epoch or starts_over:
            self._begin(epoch, message.seq)
        self._last_live = message.seq
        if batch is None:
            self._lose()
        elif self.seq is None and self.epoch is not None and _clears_all(batch):
            self._install(Holdings(), message.seq - 1)
        if batch is not None and not self._is_overfull:
            self._take(message.seq, batch)

    def _begin(self, epoch: bytes | None, seq: int) -> None:
        """Another engine, or a new life of it: nothing is known."""
        self._lose()
        self.holdings = Holdings()
        self.epoch = epoch
        self._request = None
        self._num_tries = 0
        self._replay_is_vain = self._nobody_answers = self._is_overfull = False
        if epoch is None and seq == 0:
            self.seq = -1

    def _lose(self) -> None:
        """No batch that is here helps."""
        self.seq = None
        self._held.clear()

    def _take(self, seq: int, batch: EventBatch) -> None:
        if self.seq is not None and seq <= self.seq:
            return
        self._held[seq] = batch
        if len(self._held) > MAX_HELD_BATCHES:
            self._lose()
        self._catch_up()

    def _catch_up(self) -> None:
        """Applies what is held and comes next."""
        while self.seq is not None and (batch := self._held.pop(self.seq + 1, None)) is not None:
            self.holdings.apply(batch.events)
            self.seq += 1
            digests = None if batch.stamp is None else batch.stamp.digests
            if digests is not None and digests != self.holdings.residency.digests():
                self.num_drifts += 1
                self.seq = None
        if self.holdings.residency.num_blocks > self._max_blocks:
            self._lose()
            self.holdings = Holdings()
            self._is_overfull = True

    def _install(self, holdings: Holdings, seq: int) -> None:
        """Goes on from a known state."""
        self.holdings, self.seq = holdings, seq
        self._held = {number: batch for number, batch in self._held.items() if number > seq}
        self._catch_up()

    # ---- answers

    def _take_answer(self, message: Replayed | ReplayEnd | Snapshot | Refused, now_s: float) -> None:
        match message:
            case Replayed():
                self._deadline_s = now_s + PATIENCE_S
                self._take_replayed(message)
            case ReplayEnd():
                self._request = None
                self._replay_is_vain = True
            case Snapshot():
                self._take_snapshot(message, now_s)
            case Refused():
                self._request = None
                self._nobody_answers = True
        if self.epoch is None and self._request is None and self._has_gap:
            self._accept_gap()

    def _take_replayed(self, message: Replayed) -> None:
        batch = _decoded(message.payload)
        if batch is None or _epoch(batch) != self.epoch:
            return
        if self.seq is None and self.epoch is None:
            self._install(Holdings(), message.seq - 1)
        self._take(message.seq, batch)

    def _take_snapshot(self, message: Snapshot, now_s: float) -> None:
        """Of another epoch than the live batches it comes too early or too late: better ask again in a while."""
        holdings = Holdings()
        batches = [_decoded(payload) for payload in message.payloads]
        is_whole = bool(batches) and message.epoch == self.epoch
        for batch in batches:
            is_whole = is_whole and batch is not None and _epoch(batch) == self.epoch
            if batch is not None:
                holdings.apply(batch.events)
        last = batches[-1].stamp if batches and batches[-1] is not None else None
        if is_whole and last is not None and last.digests == holdings.residency.digests():
            self._request = None
            self._install(holdings, message.seq)
        else:
            self._deadline_s = now_s + PATIENCE_S

    def _accept_gap(self) -> None:
        """Nothing can be done about an engine without epochs: what was known may be gone, so it is forgotten."""
        first = min(self._held, default=(self._last_live or 0) + 1)
        self._install(Holdings(), first - 1)

    # ---- requests

    @property
    def _has_gap(self) -> bool:
        return self._last_live is not None and (self.seq is None or self.seq < self._last_live)

    def _ask(self, now_s: float) -> list[Request]:
        """The request that is needed, if it is not on its way."""
        if not self._has_gap or self._is_overfull or self._nobody_answers:
            self._request = None
            if not self._has_gap:
                self._num_tries, self._replay_is_vain = 0, False
            return []
        needs_all = self.epoch is not None and (self.seq is None or self._replay_is_vain)
        if self._request is not None and isinstance(self._request, AskSnapshot) == needs_all:
            return []
        self.num_recoveries += 1
        self._deadline_s = now_s + min(PATIENCE_S * 2**self._num_tries, MAX_PATIENCE_S)
        start = 0 if self.seq is None else self.seq + 1
        self._request = AskSnapshot(next(self._ids)) if needs_all else AskReplay(next(self._ids), start)
        return [self._request]


def _decoded(payload: bytes) -> EventBatch | None:
    """None: nobody can say what has happened."""
    try:
        return decode_batch(payload)
    except MalformedBatchError:
        return None


def _epoch(batch: EventBatch) -> bytes | None:
    return None if batch.stamp is None else batch.stamp.epoch


def _clears_all(batch: EventBatch) -> bool:
    return bool(batch.events) and isinstance(batch.events[0], AllBlocksCleared)
