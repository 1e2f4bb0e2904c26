"""All waiting requests, in a lane per tenant where tenants are told apart, and which lane is next."""

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from octavo.scheduling.lane import Lane
from octavo.scheduling.policy import SortKey
from octavo.scheduling.request_state import SchedulerRequest
from octavo.scheduling.tenants import Tenants

_MIN_HEAP_TO_SWEEP = 64

LaneEntry = tuple[float, SortKey, str]
"""(rank of the tenant, key of the lane's head, name of the lane)"""


class Lanes:
    """Lanes by name, in the order of (rank of the tenant, key of the head).

    That order is a heap whose entries may be too good, never too bad: a better head files a new entry, while a head
    that leaves and a rank that grows with service are noticed when the entry comes to the top. So a step costs
    O(log lanes) for each request that starts, however many tenants wait.
    """

    def __init__(self, sort_key: Callable[[SchedulerRequest], SortKey], tenants: Tenants) -> None:
        self._sort_key = sort_key
        self._tenants = tenants
        self._lane_by_name: dict[str, Lane] = {}
        self._entry_by_name: dict[str, LaneEntry] = {}
        """The entry of each lane that counts."""
        self._heap: list[LaneEntry] = []

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lane_by_name.values())

    def push(self, request: SchedulerRequest) -> None:
        """Lines a request up, also anew after its key has changed."""
        name = self._tenants.lane_of(request.request)
        lane = self._lane_by_name.get(name)
        if lane is None:
            lane = self._lane_by_name[name] = Lane(self._sort_key)
        lane.push(request)
        self._file(name, lane)

    def push_again(self, requests: Sequence[SchedulerRequest]) -> None:
        """The same for many that may have better keys; those not lined up here are left out."""
        by_name: dict[str, list[SchedulerRequest]] = {}
        for request in requests:
            by_name.setdefault(self._tenants.lane_of(request.request), []).append(request)
        for name, moved in by_name.items():
            lane = self._lane_by_name.get(name)
            if lane is not None:
                lane.push_all([request for request in moved if request in lane])
                self._file(name, lane)

    def remove(self, request: SchedulerRequest) -> None:
        """Takes a request out, wherever it stands."""
        name = self._tenants.lane_of(request.request)
        lane = self._lane_by_name[name]
        lane.remove(request)
        if not lane:
            del self._lane_by_name[name], self._entry_by_name[name]

    def next(self) -> Lane | None:
        """The lane whose head is next; None if nobody waits whose tenant may run one more."""
        full: list[LaneEntry] = []
        found = None
        while found is None and self._heap:
            entry = self._heap[0]
            name = entry[2]
            if self._entry_by_name.get(name) is not entry:
                heappop(self._heap)
                continue
            current = self._entry_now(name, self._lane_by_name[name])
            if current != entry:
                heapreplace(self._heap, current)
                self._entry_by_name[name] = current
            elif self._tenants.may_start(name):
                found = self._lane_by_name[name]
            else:
                full.append(heappop(self._heap))
        for entry in full:
            heappush(self._heap, entry)
        return found

    def _entry_now(self, name: str, lane: Lane) -> LaneEntry:
        return self._tenants.rank(name), lane.head_key(), name

    def _file(self, name: str, lane: Lane) -> None:
        current, known = self._entry_now(name, lane), self._entry_by_name.get(name)
        if known is not None and known <= current:
            return
        self._entry_by_name[name] = current
        heappush(self._heap, current)
        if len(self._heap) > 2 * len(self._lane_by_name) + _MIN_HEAP_TO_SWEEP:
            self._heap = list(self._entry_by_name.values())
            heapify(self._heap)
