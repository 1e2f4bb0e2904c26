"""The waiting queue: bounded for arrivals, in lanes by tenant, ordered by the policy."""

from collections import deque
from collections.abc import Iterator

from octavo.errors import QueueFullError
from octavo.request.account import WaitReason
from octavo.request.step_record import QueuedFigures
from octavo.scheduling.lanes import Lanes
from octavo.scheduling.length_sums import LengthSums
from octavo.scheduling.policy import SchedulingPolicy
from octavo.scheduling.prefix_hits import PrefixHits
from octavo.scheduling.request_state import SchedulerRequest
from octavo.scheduling.tenants import Tenants
from octavo.scheduling.wait_book import WaitBook

_MIN_RETRY_S, _MAX_RETRY_S = 1.0, 60.0
_NUM_STARTS = 32


class WaitingQueue:
    """Requests that wait to be admitted, new and preempted ones.

    The next one is the first of the lane whose tenant has had least; among equals (always, unless shares are fair) the
    one with the smallest key. Tenants that run as many requests as they may are passed over.
    """

    def __init__(
        self,
        policy: SchedulingPolicy,
        max_length: int,
        tenants: Tenants,
        hits: PrefixHits | None = None,
        waits: WaitBook | None = None,
    ) -> None:
        """
        Args:
            hits: keeps the hit lengths of what waits here; needed by policies that follow them.
            waits: hears of who waits for what. None: one of its own.
        """
        self._waits = waits or WaitBook(tenants)
        self._sort_key = policy.sort_key
        self._max_length = max_length
        self._tenants = tenants
        self._hits = hits
        self._lanes = Lanes(policy.sort_key, tenants)
        self._aside: list[SchedulerRequest] = []
        self._parked: set[SchedulerRequest] = set()
        self._holds_new = False
        self._held: dict[SchedulerRequest, None] = {}
        """Kept from the head while new ones are held back."""
        self._new, self._preempted = LengthSums(), LengthSums()
        """Known tokens of those that have not run, and of the others."""
        self._starts: deque[float] = deque(maxlen=_NUM_STARTS)
        """When the last requests left to run, seconds."""

    def __len__(self) -> int:
        return self._new.count + self._preempted.count

    @property
    def num_tokens(self) -> int:
        """Known tokens of all that wait."""
        return self._new.total + self._preempted.total

    @property
    def figures(self) -> QueuedFigures:
        """Who waits, in numbers."""
        new, preempted = self._new, self._preempted
        return QueuedFigures(
            num_prefill_requests=new.count,
            sum_prefill_tokens=new.total,
            var_prefill_length=new.variance,
            num_decode_requests=preempted.count,
            sum_decode_kv_tokens=preempted.total,
            var_decode_kv_tokens=preempted.variance,
        )

    @property
    def num_cached_tokens(self) -> int | None:
        """Of `num_tokens`, those found in the prefix cache; None where hits are not followed."""
        return None if self._hits is None else self._hits.num_tokens

    @property
    def full(self) -> bool:
        """Whether the queue is at its bound for arrivals."""
        return len(self) >= self._max_length

    def __iter__(self) -> Iterator[SchedulerRequest]:
        """Those that may come to the head, in the policy's order, whatever the lanes; O(n log n)."""
        return iter(sorted((request for lane in self._lanes for request in lane), key=self._sort_key))

    def check_room(self, now_s: float) -> None:
        """
        Raises:
            QueueFullError: the queue is at its bound for arrivals.
        """
        if self.full:
            raise QueueFullError(
                f"{len(self)} requests are waiting, and max_num_queued_reqs is {self._max_length}; try again later",
                self._time_to_next_start(now_s),
            )

    def add(self, request: SchedulerRequest) -> None:
        """Queues a request: a new one, after `check_room`, or a preempted one, which was accepted before."""
        self._sums(request).add(len(request.token_ids))
        self._line_up(request)

    def _line_up(self, request: SchedulerRequest) -> None:
        if self._holds_new and not request.has_run:
            self._hold(request)
            return
        if self._hits is not None:
            self._hits.follow(request)
        self._lanes.push(request)
        self._waits.joined(request)

    def _hold(self, request: SchedulerRequest) -> None:
        self._held[request] = None
        self._waits.parked(request, WaitReason.PAUSED)

    def hold_new(self) -> None:
        """From now on only requests that have run before come to the head, until `release_new`."""
        self._holds_new = True
        for request in [request for lane in self._lanes for request in lane if not request.has_run]:
            self._lanes.remove(request)
            if self._hits is not None:
                self._hits.forget(request)
            self._hold(request)

    def release_new(self) -> None:
        """Puts those held back where they belong; no-op if none are."""
        self._holds_new = False
        held, self._held = self._held, {}
        for request in held:
            self._line_up(request)

    def begin_step(self) -> None:
        """A new step is planned: the order may again be brought up to date, as far as one step does it."""
        if self._hits is not None:
            self._hits.begin_step()

    def head(self) -> SchedulerRequest | None:
        """The next to be admitted; None if nobody may."""
        if self._hits is not None:
            self._lanes.push_again(self._hits.lengthened())  # those set aside come with `restore`
        lane = self._lanes.next()
        while lane is not None and self._hits is not None and self._hits.refresh(lane.head()):
            self._lanes.push(lane.head())
            lane = self._lanes.next()
        return None if lane is None else lane.head()

    def set_aside(self, request: SchedulerRequest) -> None:
        """Lets the next one come to the head, until `restore`. The request goes on waiting."""
        self._lanes.remove(request)
        self._aside.append(request)

    def restore(self) -> None:
        """Puts those set aside back where they belong."""
        for request in self._aside:
            self._lanes.push(request)
        self._aside.clear()

    def park(self, request: SchedulerRequest, reason: WaitReason) -> None:
        """Keeps a request from coming to the head, until `unpark`. It goes on waiting, and counts.

        Args:
            reason: what it waits for meanwhile.
        """
        self._parked.add(request)
        self._waits.parked(request, reason)
        if request in self._held:
            del self._held[request]
            return
        self._lanes.remove(request)
        if self._hits is not None:
            self._hits.forget(request)

    def unpark(self, request: SchedulerRequest) -> None:
        """Puts a parked request back where it belongs."""
        self._parked.remove(request)
        self._line_up(request)

    def start(self, request: SchedulerRequest, now_s: float) -> None:
        """Takes out a request that is admitted."""
        self.remove(request)
        self._starts.append(now_s)

    def remove(self, request: SchedulerRequest) -> None:
        """Takes a request out, wherever it stands."""
        self._sums(request).remove(len(request.token_ids))
        self._waits.left(request)
        if request in self._held:
            del self._held[request]
            return
        if request in self._parked:
            self._parked.remove(request)
            return
        self._lanes.remove(request)
        if self._hits is not None:
            self._hits.forget(request)

    def _sums(self, request: SchedulerRequest) -> LengthSums:
        return self._preempted if request.has_run else self._new

    def _time_to_next_start(self, now_s: float) -> float:
        """Seconds in which, at the pace of the last admissions, a place in the queue becomes free."""
        if not self._starts:
            return _MIN_RETRY_S
        return min(_MAX_RETRY_S, max(_MIN_RETRY_S, (now_s - self._starts[0]) / len(self._starts)))
