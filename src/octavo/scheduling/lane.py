"""One ordered line of waiting requests."""

from collections.abc import Callable, Collection, Iterator
from heapq import heapify, heappop, heappush

from octavo.scheduling.policy import SortKey
from octavo.scheduling.request_state import SchedulerRequest

_MIN_HEAP_TO_SWEEP = 64
_SHARE_TO_REBUILD = 4


class Lane:
    """Waiting requests as a heap over the policy's sort key.

    A request that leaves from the middle, or whose key has changed, leaves its old entry behind until that comes to
    the top or such entries are the majority: removal is O(1) amortised, and aborts behind a stuck head do not pile up.
    """

    def __init__(self, sort_key: Callable[[SchedulerRequest], SortKey]) -> None:
        self._sort_key = sort_key
        self._entry_of: dict[SchedulerRequest, int] = {}
        """Number of the entry that counts."""
        self._heap: list[tuple[SortKey, int, SchedulerRequest]] = []
        self._num_pushed = 0

    def __len__(self) -> int:
        return len(self._entry_of)

    def __contains__(self, request: SchedulerRequest) -> bool:
        return request in self._entry_of

    def __iter__(self) -> Iterator[SchedulerRequest]:
        """In order, by the keys as they are now; O(n log n)."""
        return iter(sorted(self._entry_of, key=self._sort_key))

    def push(self, request: SchedulerRequest) -> None:
        """Lines a request up, or lines it up anew after its key has changed."""
        self._num_pushed += 1
        self._entry_of[request] = self._num_pushed
        heappush(self._heap, (self._sort_key(request), self._num_pushed, request))

    def push_all(self, requests: Collection[SchedulerRequest]) -> None:
        """The same for many; O(n) for the whole lane where they are a good part of it."""
        if len(requests) * _SHARE_TO_REBUILD < len(self._entry_of):
            for request in requests:
                self.push(request)
            return
        self._entry_of.update(dict.fromkeys(requests, 0))
        self._heap = [(self._sort_key(request), 0, request) for request in self._entry_of]
        self._entry_of = dict.fromkeys(self._entry_of, 0)
        heapify(self._heap)

    def head(self) -> SchedulerRequest:
        """The first in line, which must not be empty."""
        while self._entry_of.get(self._heap[0][2]) != self._heap[0][1]:
            heappop(self._heap)
        return self._heap[0][2]

    def head_key(self) -> SortKey:
        """The key under which `head` stands."""
        self.head()
        return self._heap[0][0]

    def remove(self, request: SchedulerRequest) -> None:
        """Takes a request out, wherever it stands."""
        del self._entry_of[request]
        if len(self._heap) > 2 * len(self._entry_of) + _MIN_HEAP_TO_SWEEP:
            self._heap = [entry for entry in self._heap if self._entry_of.get(entry[2]) == entry[1]]
            heapify(self._heap)
