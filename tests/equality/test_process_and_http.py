"""Same request, same tokens, same logprob bits: across the border of the core process, and over HTTP."""

from pathlib import Path

import pytest

from tests.equality.baseline import Baseline
from tests.equality.conftest import COMMON, TinyBaseline, TinyFile
from tests.equality.core_process import CoreProcess
from tests.equality.http import ask_all, ask_together, leave_early, serving
from tests.equality.settings import NOTHING_FORESEEN, Alone, pool_of
from tests.equality.tiny_models import EVERY_FAMILY
from tests.equality.transcript import assert_same
from tests.equality.workload import Request, seeded, shuffled


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_beside_neighbours_that_leave(tiny_baseline: TinyBaseline, family: str) -> None:
    tiny_baseline(family).check(CoreProcess(neighbours_per_request=2))


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_beside_neighbours_that_leave_while_a_step_is_in_flight(tiny_baseline: TinyBaseline, family: str) -> None:
    fields = {"async_scheduling": True, "block_size": 4}
    tiny_baseline(family).check(CoreProcess(fields, neighbours_per_request=2, at_least={"discarded_tokens": 1}))


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_beside_neighbours_that_leave_with_little_memory(tiny_baseline: TinyBaseline, family: str) -> None:
    baseline = tiny_baseline(family, "growing")
    fields = {"max_model_len": 96, "block_size": 4, **pool_of(baseline.model, 136), "threads": 2, **NOTHING_FORESEEN}
    baseline.check(CoreProcess(fields, neighbours_per_request=1, at_least={"preemptions": 2}))


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_salts_and_priorities(tiny_baseline: TinyBaseline, family: str) -> None:
    baseline = tiny_baseline(family, "growing")
    pool = {"max_model_len": 96, **pool_of(baseline.model, 160), **NOTHING_FORESEEN}
    fields = {**pool, "scheduling_policy": "priority"}
    baseline.check(CoreProcess(fields, neighbours_per_request=1, salts=3, priorities=4, at_least={"preemptions": 1}))


@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_over_http(tiny_baseline: TinyBaseline, family: str, tmp_path: Path) -> None:
    baseline = tiny_baseline(family)
    expected = baseline.seen_over_http
    with serving(baseline.model, baseline.fields | {"max_num_batched_tokens": 100}, tmp_path) as url:
        assert_same(expected, ask_all(url, baseline.workload, stream=False))
        leave_early(url, tuple(request for request in baseline.workload if len(request.prompt) < 150))
        assert_same(expected, ask_all(url, shuffled(baseline.workload), stream=True))


def test_many_prompts_in_one_http_request(tiny_file: TinyFile, tmp_path: Path) -> None:
    params = seeded(4, 12, n=2, logprobs=2, prompt_logprobs=1)
    workload = tuple(Request(f"prompt {i}", tuple(range(10 + i, 20 + 5 * i)), params) for i in range(12))
    baseline = Baseline.of(tiny_file("qwen2"), COMMON, workload, Alone())
    with serving(baseline.model, baseline.fields, tmp_path) as url:
        for stream in (False, True):
            assert_same(baseline.seen_over_http, ask_together(url, workload, stream=stream))
