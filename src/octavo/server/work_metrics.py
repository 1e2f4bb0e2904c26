"""The accounts of requests as metrics: where the time of all that have ended went, and what their work cost."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter

from octavo.request.account import Account, WorkDone


class WorkMetrics:
    """Sums over accounts. A request without one adds nothing."""

    def __init__(self, prefix: str, labels: Mapping[str, str], registry: CollectorRegistry) -> None:
        self._labels = labels

        def counter(name: str, text: str, *own: str) -> Counter:
            return Counter(name, text, [*labels, *own], registry=registry)

        self._phases = counter("octavo:request_phase_seconds", "From arrival to end, by phase.", "phase")
        self._waits = counter("octavo:request_wait_seconds", "Of the waiting phases, by reason.", "phase", "reason")
        self._steps = counter("octavo:request_step_seconds", "Of the steps of requests, for each of them.", "phase")
        self._share = counter("octavo:request_share_seconds", "The same, divided by rows.", "phase")
        text = "Least time of these steps on this machine, had each run for its request alone."
        self._bound = counter("octavo:request_bound_seconds", text, "phase")
        self._flops = counter(prefix + "estimated_flops_per_gpu", "Operations of the rows of requests.")
        self._read = counter(prefix + "estimated_read_bytes_per_gpu", "Weights by rows, and K and V read and written.")

    def add(self, account: Account | None) -> None:
        """A choice has ended."""
        if account is None:
            return
        for phase, seconds in account.phases_s.items():
            self._phases.labels(**self._labels, phase=str(phase)).inc(seconds)
        for phase, waits in account.waits_s.items():
            for reason, seconds in waits.items():
                self._waits.labels(**self._labels, phase=str(phase), reason=str(reason)).inc(seconds)
        for phase, work in account.work.items():
            self._add_work(str(phase), work)

    def _add_work(self, phase: str, work: WorkDone) -> None:
        self._steps.labels(**self._labels, phase=phase).inc(work.steps_s)
        self._share.labels(**self._labels, phase=phase).inc(work.share_s)
        if work.bound_s is not None:
            self._bound.labels(**self._labels, phase=phase).inc(work.bound_s)
        self._flops.labels(**self._labels).inc(work.flops or 0)
        self._read.labels(**self._labels).inc((work.weight_bytes or 0) + (work.kv_bytes or 0))
