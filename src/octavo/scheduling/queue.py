"""The waiting queue: bounded for arrivals, ordered by the policy."""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

from octavo.errors import QueueFullError
from octavo.scheduling.policy import SortKey
from octavo.scheduling.request_state import SchedulerRequest

RETRY_AFTER_S = 1.0
"""Wait suggested to refused clients. The queue has no clock, so it cannot estimate one."""
_MIN_HEAP_TO_SWEEP = 64


class WaitingQueue:
    """Requests that wait to be admitted, new and preempted ones, as a heap over the policy's sort key.

    A request removed from the middle leaves its heap entry behind until that comes to the top or such entries are
    the majority: removal is O(1) amortised, and aborts behind a stuck head do not pile up.
    """

    def __init__(self, sort_key: Callable[[SchedulerRequest], SortKey], max_length: int) -> None:
        self._sort_key = sort_key
        self._max_length = max_length
        self._waiting: set[SchedulerRequest] = set()
        self._heap: list[tuple[SortKey, int, SchedulerRequest]] = []
        self._num_pushed = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Whether the queue is at its bound for arrivals."""
        return len(self._waiting) >= self._max_length

    def __iter__(self) -> Iterator[SchedulerRequest]:
        """In the order of admission; O(n log n)."""
        return iter(sorted(self._waiting, key=self._sort_key))

    def add(self, request: SchedulerRequest) -> None:
        """Queues an arrival.

        Raises:
            QueueFullError: the queue is at its bound.
        """
        if self.full:
            raise QueueFullError(
                f"{len(self._waiting)} requests are waiting, and max_num_queued_reqs is {self._max_length}; "
                "try again later",
                RETRY_AFTER_S,
            )
        self._push(request)

    def put_back(self, request: SchedulerRequest) -> None:
        """Queues a preempted request. The bound does not apply: it was accepted before."""
        self._push(request)

    def head(self) -> SchedulerRequest:
        """The next to be admitted. The queue must not be empty."""
        while self._heap[0][2] not in self._waiting:
            heappop(self._heap)
        return self._heap[0][2]

    def remove(self, request: SchedulerRequest) -> None:
        """Takes a request out, wherever it stands."""
        self._waiting.remove(request)
        if len(self._heap) > 2 * len(self._waiting) + _MIN_HEAP_TO_SWEEP:
            self._heap = [entry for entry in self._heap if entry[2] in self._waiting]
            heapify(self._heap)

    def _push(self, request: SchedulerRequest) -> None:
        self._waiting.add(request)
        self._num_pushed += 1
        heappush(self._heap, (self._sort_key(request), self._num_pushed, request))
