"""Peaks: every kernel path runs, and what must hold between figures on any machine does."""

import pytest

from octavo import _native
from octavo.platform.peaks import measure_peaks


@pytest.mark.parametrize("isa", _native.available_isas())
def test_every_path_has_peaks(isa: str) -> None:
    peaks = measure_peaks(threads=2, isa=isa, seconds=0.04)
    assert (peaks.threads, peaks.isa) == (2, isa)
    for rate in (peaks.read_bytes_per_s, peaks.int8_ops_per_s, peaks.float_ops_per_s):
        assert 1e7 < rate < 1e15


def test_an_unknown_path_is_refused() -> None:
    with pytest.raises(ValueError, match="mmx"):
        measure_peaks(threads=1, isa="mmx")


def test_a_memory_that_fits_the_caches_is_refused() -> None:
    with pytest.raises(ValueError, match="num_bytes=4096"):
        _native.read_peak(_native.ThreadPool(1), "portable", 0.01, 4096)
