"""The times of the ops of native executors, on the clock of their caller."""

from collections.abc import Callable, Mapping, Sequence

from octavo import _native
from octavo.execution.native.executor import NativeExecutor
from octavo.request.profile import OpInfo


class NativeOpTimer:
    """An `OpTimer` of executors that never run at the same time."""

    def __init__(self, executors: Mapping[str, NativeExecutor], clock: Callable[[], float]) -> None:
        """
        Args:
            executors: by the name of their program.
            clock: seconds; runs as fast as the native core's.
        """
        self._executors = executors
        self._clock = clock

    @property
    def programs(self) -> Mapping[str, Sequence[OpInfo]]:
        """See `OpTimer.programs`."""
        return {name: executor.ops for name, executor in self._executors.items()}

    def start(self) -> None:
        """See `OpTimer.start`."""
        for executor in self._executors.values():
            executor.time_ops(on=True)

    def stop(self) -> dict[str, bytes]:
        """See `OpTimer.stop`."""
        offset_ns = self._offset_ns()
        kept = {}
        for name, executor in self._executors.items():
            executor.time_ops(on=False)
            table = executor.take_op_times()
            if offset_ns:
                table[:, 2:4] += offset_ns
            if len(table):
                kept[name] = table.astype("<i8", copy=False).tobytes()
        return kept

    def _offset_ns(self) -> int:
        """From the native core's clock to the caller's. Mostly they are one: then nothing may be lost by rounding."""
        before, native, after = self._clock(), _native.steady_ns(), self._clock()
        if before <= native * 1e-9 <= after:
            return 0
        return round((before + after) / 2 * 1e9) - native
