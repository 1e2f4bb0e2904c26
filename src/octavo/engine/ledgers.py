"""The ledgers of live and recent requests, for whoever made them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from octavo.request.ledger import ChoiceLedger, Delivered, RequestLedger
from octavo.request.orders import End
from octavo.request.outputs import FinishReason, RequestStats
from octavo.request.request import GenerateRequest

MAX_RECENT = 4096
"""Ended API requests that are remembered: the last ones."""
MAX_RECENT_BYTES = 8 * 2**20
"""What these may take together."""
_RECORD_BYTES = 600
"""What one takes beside its names and choices, roughly."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ChoiceLedger).decode

Name = tuple[str, str]
"""Tenant and id: nobody finds a request of another tenant, whatever it is called."""


@dataclass
class _Record:
    tenant: str
    group: str
    alias: str
    priority: int
    first_id: str
    """Of its first sequence. When that comes again the id is used anew, for another request."""
    live: dict[str, None] = field(default_factory=dict)
    ended: list[bytes] = field(default_factory=list)
    delivered_s: float | None = None

    @property
    def num_bytes(self) -> int:
        names = 2 * (len(self.tenant) + len(self.group) + len(self.alias))
        return _RECORD_BYTES + names + sum(len(choice) + 50 for choice in self.ended)


class Ledgers:
    """Which sequences make up which request of the API, and how those ended that have. Bounded: the oldest ended
    requests are forgotten.

    A request is found by the id in its answer, or by the name that its client gave it; of several of one name the
    newest.
    """

    def __init__(self, *, max_recent: int = MAX_RECENT, max_bytes: int = MAX_RECENT_BYTES) -> None:
        self._max_recent = max_recent
        self._max_bytes = max_bytes
        self._records: dict[Name, _Record] = {}
        self._by_alias: dict[Name, _Record] = {}
        self._of_live: dict[str, _Record] = {}
        """Core request id -> its request."""
        self._ended: dict[Name, int] = {}
        """Requests without live sequences, the one that ended first first -> bytes."""
        self.num_bytes = 0
        """What the ended ones take."""

    def __len__(self) -> int:
        """Requests known, live and ended."""
        return len(self._records)

    def opened(self, request: GenerateRequest) -> None:
        """A sequence was taken in."""
        name = (request.tenant, request.group or request.request_id)
        record = self._records.get(name)
        if record is None or record.first_id == request.request_id:
            self._forget(name)
            record = self._records[name] = _Record(*name, request.alias, request.priority, request.request_id)
            if request.alias:
                self._by_alias[request.tenant, request.alias] = record
        self.num_bytes -= self._ended.pop(name, 0)
        record.live[request.request_id] = None
        self._of_live[request.request_id] = record

    def closed(self, request_id: str, reason: FinishReason, stats: RequestStats) -> None:
        """A sequence has ended; no-op for one that is not live."""
        record = self._of_live.pop(request_id, None)
        if record is None:
            return
        del record.live[request_id]
        choice = ChoiceLedger(request_id=request_id, state="finished", finish_reason=reason, stats=stats)
        record.ended.append(_encode(choice))
        if not record.live:
            name = (record.tenant, record.group)
            self._ended[name] = record.num_bytes
            self.num_bytes += record.num_bytes
            self._forget_oldest()

    def correct(self, told: End) -> RequestStats | None:
        """A sequence that has ended, ended otherwise for its caller. Returns its ledger, None if it is forgotten."""
        name = (told.tenant, told.group)
        record = self._records.get(name)
        choices = [] if record is None else [_decode(choice) for choice in record.ended]
        for place, choice in enumerate(choices):
            if record is not None and choice.request_id == told.request_id:
                record.ended[place] = _encode(replace(choice, finish_reason=told.reason))
                self._weigh(name, record)
                return choice.stats
        return None

    def _weigh(self, name: Name, record: _Record) -> None:
        """What an ended request takes has changed."""
        if name in self._ended:
            self.num_bytes += record.num_bytes - self._ended[name]
            self._ended[name] = record.num_bytes

    def delivered(self, note: Delivered) -> None:
        """The answer of a request has left; no-op if it is forgotten."""
        record = self._records.get((note.tenant, note.group))
        if record is not None:
            record.delivered_s = note.delivered_s

    def _forget_oldest(self) -> None:
        while self._ended and (len(self._ended) > self._max_recent or self.num_bytes > self._max_bytes):
            self._forget(next(iter(self._ended)))

    def _forget(self, name: Name) -> None:
        record = self._records.pop(name, None)
        self.num_bytes -= self._ended.pop(name, 0)
        if record is not None and self._by_alias.get((record.tenant, record.alias)) is record:
            del self._by_alias[record.tenant, record.alias]

    def live_ids(self, tenant: str, names: Iterable[str]) -> dict[str, list[str]]:
        """API request id -> its live sequences, of those of these names that have any."""
        found = {name: self._find(tenant, name) for name in names}
        return {record.group: list(record.live) for record in found.values() if record is not None and record.live}

    def find(self, tenant: str, name: str, look: "Look", now_s: float) -> RequestLedger | None:
        """The ledger of one request; None if the tenant made none of this name, or it is forgotten.

        Args:
            look: reads a live sequence.
        """
        record = self._find(tenant, name)
        return None if record is None else _ledger(record, look, now_s)

    def live(self, look: "Look", now_s: float) -> list[RequestLedger]:
        """All requests with live sequences, of all tenants, in the order in which they came."""
        return [_ledger(record, look, now_s) for record in self._records.values() if record.live]

    def _find(self, tenant: str, name: str) -> _Record | None:
        return self._records.get((tenant, name)) or self._by_alias.get((tenant, name))


Look = Callable[[str], ChoiceLedger]
"""Core request id of a live sequence -> its ledger as it is now."""


def _ledger(record: _Record, look: Look, now_s: float) -> RequestLedger:
    ended = [_delivered(_decode(choice), record.delivered_s) for choice in record.ended]
    choices = ended + [look(request_id) for request_id in record.live]
    return RequestLedger(
        request_id=record.group,
        tenant=record.tenant,
        alias=record.alias,
        priority=record.priority,
        choices=sorted(choices, key=lambda choice: (choice.stats.arrival_s, len(choice.request_id), choice.request_id)),
        now_s=now_s,
    )


def _delivered(choice: ChoiceLedger, delivered_s: float | None) -> ChoiceLedger:
    """A choice whose client has gone before its end was never delivered."""
    if delivered_s is None or choice.stats.finished_s is None or delivered_s < choice.stats.finished_s:
        return choice
    return replace(choice, stats=replace(choice.stats, delivered_s=delivered_s))
