"""Same request, same tokens, same logprob bits: across the border of the core process, and over HTTP."""

from pathlib import Path

import pytest

from tests.equality.conftest import TinyBaseline
from tests.equality.core_process import CoreProcess
from tests.equality.http import ask_all, leave_early, serving
from tests.equality.tiny_models import FAMILIES
from tests.equality.transcript import assert_same
from tests.equality.workload import shuffled


@pytest.mark.parametrize("family", FAMILIES)
def test_beside_neighbours_that_leave(tiny_baseline: TinyBaseline, family: str) -> None:
    tiny_baseline(family).check(CoreProcess(neighbours_per_request=2))


@pytest.mark.parametrize("family", FAMILIES)
def test_beside_neighbours_that_leave_with_little_memory(tiny_baseline: TinyBaseline, family: str) -> None:
    baseline = tiny_baseline(family)
    setting = CoreProcess({"num_kv_blocks": 150, "threads": 2, "max_num_batched_tokens": 40}, neighbours_per_request=1)
    baseline.check(setting)


@pytest.mark.parametrize("family", FAMILIES)
def test_over_http(tiny_baseline: TinyBaseline, family: str, tmp_path: Path) -> None:
    baseline = tiny_baseline(family)
    expected = baseline.seen_over_http
    with serving(baseline.model, baseline.fields | {"max_num_batched_tokens": 100}, tmp_path) as url:
        assert_same(expected, ask_all(url, baseline.workload, stream=False))
        leave_early(url, baseline.workload, after=2)
        assert_same(expected, ask_all(url, shuffled(baseline.workload), stream=True))
