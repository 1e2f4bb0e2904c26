"""Why requests wait: who stands in a line, who waits for something of its own, and what time it is."""

from weakref import WeakValueDictionary

from octavo.request.account import WaitReason
from octavo.scheduling.request_state import SchedulerRequest
from octavo.scheduling.tenants import Tenants
from octavo.scheduling.wait_line import Line, TenantLine, WaitLine


class WaitBook:
    """Turns the clocks of waiting requests.

    What the planning of a step decides holds until the next one. Most requests it does not look at: they wait for what
    stopped it. Those that it has looked at and passed, a handful, wait for what they lack. Who comes meanwhile waits
    for the next planning:

        planning            next planning
        | in line: slots    | in line: budget ...
        | head: blocks      | in line: budget ...
             | new: step    | in line: budget ...
    """

    def __init__(self, tenants: Tenants) -> None:
        self.now_s = 0.0
        """The time of the call that the scheduler is in; it says so at each."""
        self._tenants = tenants
        self._line = WaitLine()
        self._tenant_lines: WeakValueDictionary[str, TenantLine] = WeakValueDictionary()
        """Where the number that may run is bounded: each lives as long as somebody waits in it."""
        self._apart: dict[SchedulerRequest, WaitReason] = {}
        """Who waits for something of his own until the next planning, and for what."""
        self._judged: dict[SchedulerRequest, WaitReason] = {}
        """By the planning that goes on."""

    def joined(self, request: SchedulerRequest) -> None:
        """It is looked at when the next step is planned."""
        if self._line.reason is WaitReason.PAUSED:
            request.book.clock.wait_in(self._line, self._line.read(self.now_s), self.now_s)
            return
        request.book.clock.wait_for(WaitReason.STEP, self.now_s)
        self._apart[request] = WaitReason.STEP

    def parked(self, request: SchedulerRequest, reason: WaitReason) -> None:
        """It leaves the line and waits for something of its own, until it joins again."""
        self.left(request)
        request.book.clock.wait_for(reason, self.now_s)

    def left(self, request: SchedulerRequest) -> None:
        """It waits no longer, or not in the line; what it does is somebody else's business."""
        self._apart.pop(request, None)
        self._judged.pop(request, None)

    def judge(self, request: SchedulerRequest, reason: WaitReason) -> None:
        """The planning that goes on has looked at a request, and this is what it lacks."""
        self._judged[request] = reason

    def planned(self, reason: WaitReason) -> None:
        """A step has been planned.

        Args:
            reason: what those wait for that nobody has looked at.
        """
        now_s = self.now_s
        self._line.turn(reason, now_s)
        for tenant in self._tenants.take_turned():
            bounded = self._tenant_lines.get(tenant)
            if bounded is not None:
                bounded.turn(now_s, is_full=not self._tenants.may_start(tenant))
        for request, lacks in self._judged.items():
            if self._apart.get(request) is not lacks:
                request.book.clock.wait_for(lacks, now_s)
        marks: dict[Line, list[float]] = {}
        for request in self._apart.keys() - self._judged.keys():
            line = self._line_of(request)
            mark = marks.get(line) or marks.setdefault(line, line.read(now_s))
            request.book.clock.wait_in(line, mark, now_s)
        self._apart, self._judged = self._judged, {}

    def pause(self) -> None:
        """Nothing is planned, until the next planning."""
        if self._line.reason is not WaitReason.PAUSED:
            self._line.turn(WaitReason.PAUSED, self.now_s)
            mark = self._line.read(self.now_s)
            for request in self._apart:
                request.book.clock.wait_in(self._line, mark, self.now_s)
            self._apart.clear()

    def _line_of(self, request: SchedulerRequest) -> Line:
        if not self._tenants.bounds_running:
            return self._line
        tenant = request.request.tenant
        line = self._tenant_lines.get(tenant)
        if line is None:
            line = TenantLine(self._line, self.now_s, is_full=not self._tenants.may_start(tenant))
            self._tenant_lines[tenant] = line
        return line


class NoWaitBook(WaitBook):
    """One that nobody keeps."""

    def joined(self, request: SchedulerRequest) -> None:
        """Not noted."""

    def parked(self, request: SchedulerRequest, reason: WaitReason) -> None:
        """Not noted."""

    def left(self, request: SchedulerRequest) -> None:
        """Not noted."""

    def judge(self, request: SchedulerRequest, reason: WaitReason) -> None:
        """Not noted."""

    def planned(self, reason: WaitReason) -> None:
        """Not noted."""

    def pause(self) -> None:
        """Not noted."""
