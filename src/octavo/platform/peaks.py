"""What the machine can do at most, measured: the bounds that speeds are compared with."""

from dataclasses import dataclass, replace

from octavo import _native

READ_BYTES = 512 << 20
"""More than any cache of a usual machine."""


@dataclass(frozen=True)
class Peaks:
    """The best rates seen with all compute threads. Other work on the machine can only lower them."""

    threads: int
    isa: str
    read_bytes_per_s: float
    """Reading memory once, in order, in huge pages."""
    int8_ops_per_s: float
    """Multiplying and adding bytes in registers with the instructions of this path; a multiply and an add count two.
    The linear kernels' float sums come on top, so no kernel reaches it."""
    float_ops_per_s: float
    """Fused multiply-adds of float32; each counts two."""

    def best_of(self, other: "Peaks") -> "Peaks":
        """The higher rates of two measurements with the same threads and path."""
        return replace(
            self,
            read_bytes_per_s=max(self.read_bytes_per_s, other.read_bytes_per_s),
            int8_ops_per_s=max(self.int8_ops_per_s, other.int8_ops_per_s),
            float_ops_per_s=max(self.float_ops_per_s, other.float_ops_per_s),
        )


def measure_peaks(threads: int, isa: str = "auto", seconds: float = 2.0) -> Peaks:
    """Measures for about `seconds` and takes the best of many short runs.

    Args:
        threads: compute threads, as in the engine.
        isa: a kernel path, see `octavo._native.resolve_isa`.

    Raises:
        ValueError: a path that this CPU lacks.
    """
    pool, path = _native.ThreadPool(threads), _native.resolve_isa(isa)
    return Peaks(
        threads=threads,
        isa=path,
        read_bytes_per_s=_native.read_peak(pool, path, seconds / 2, READ_BYTES),
        int8_ops_per_s=_native.int8_peak(pool, path, seconds / 4),
        float_ops_per_s=_native.float_peak(pool, path, seconds / 4),
    )
