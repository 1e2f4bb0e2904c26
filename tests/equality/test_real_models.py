"""Same request, same tokens, same logprob bits: real models. SmolLM2 with a dozen requests by default and with more
of them in the slow part, the others there too."""

from pathlib import Path

import pytest

from tests.equality.baseline import INSTRUCTION_SETS, Baseline, need_isa
from tests.equality.core_process import CoreProcess
from tests.equality.http import ask_all, serving
from tests.equality.settings import NOTHING_FORESEEN, Again, AloneUncached, Crowd, Setting, Streamed
from tests.equality.texts import PLAIN_PROMPTS, text_workload
from tests.equality.transcript import assert_same
from tests.equality.workload import Workload, reverse, shuffled
from tests.real_models import model_path

FIELDS = {"max_model_len": 288, "kv_cache_memory_bytes": 128 * 2**20, "threads": 2, "max_num_batched_tokens": 2048}

SETTINGS: dict[str, Setting] = {
    "shuffled, three at a time": Crowd({"max_num_seqs": 3}, order=shuffled),
    "budget 16": Crowd({"max_num_batched_tokens": 16}),
    "no prefix cache": Crowd({"enable_prefix_caching": False}),
    "warm prefix cache": Again(at_least={"cached_tokens": 300}),
    "blocks of 8": Crowd({"block_size": 8}),
    "1 thread": Crowd({"threads": 1}, order=reverse),
    "3 threads, blocks of 32": Crowd({"threads": 3, "block_size": 32}, order=shuffled),
}
TOGETHER: dict[str, Setting] = {
    "budget 16, blocks of 8, 3 threads": Crowd({"max_num_batched_tokens": 16, "block_size": 8, "threads": 3}),
    "warm prefix cache, blocks of 32": Again({"block_size": 32}, at_least={"cached_tokens": 300}),
}
"""The same for a larger crowd, several in one: a dozen requests tell which of them it was. Those in which few
run at a time say nothing of a crowd."""
VECTOR_ISAS = tuple(isa for isa in INSTRUCTION_SETS if isa != "portable")
"""Those that are fast enough for a dozen requests."""
LONG = (2, 4, 5, 6, 8)
"""Those of the dozen that fill blocks, and share beginnings; one does not."""
POOL = {"max_model_len": 256, "num_kv_blocks": 181, "block_size": 2}


def _baseline(alias: str, workload: Workload, kv_cache_dtype: str = "fp16") -> Baseline:
    fields = {**FIELDS, "kv_cache_dtype": kv_cache_dtype}
    return Baseline.of(str(model_path(alias)), fields, workload, AloneUncached())


@pytest.fixture(scope="module")
def dozen() -> Baseline:
    return _baseline("smollm2-135m", text_workload(12, 10))


@pytest.fixture(scope="module")
def many() -> Baseline:
    return _baseline("smollm2-135m", text_workload(26, 12))


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_dozen(dozen: Baseline, setting: str) -> None:
    dozen.check(SETTINGS[setting])


@pytest.mark.parametrize("isa", VECTOR_ISAS)
def test_a_dozen_by_other_instructions(dozen: Baseline, isa: str) -> None:
    need_isa(isa, dozen.isa)
    dozen.check(Crowd({"isa": isa}))


def test_a_dozen_over_http(dozen: Baseline, tmp_path: Path) -> None:
    with serving(dozen.model, dozen.fields, tmp_path) as url:
        assert_same(dozen.seen_over_http, ask_all(url, dozen.workload, stream=False))
        assert_same(dozen.seen_over_http, ask_all(url, shuffled(dozen.workload), stream=True))


def test_three_on_the_portable_path(dozen: Baseline) -> None:
    need_isa("portable", dozen.isa)
    chosen = (dozen.workload[0], dozen.workload[1], dozen.workload[9])
    assert_same(
        {request.name: dozen.answers[request.name].transcript() for request in chosen},
        Crowd({"isa": "portable"}).run(dozen.model, dozen.fields, chosen),
    )


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("setting", TOGETHER)
def test_many(many: Baseline, setting: str) -> None:
    many.check(TOGETHER[setting])


@pytest.mark.slow
def test_many_with_a_pool_so_small_that_they_push_each_other_out(many: Baseline) -> None:
    many.check(Crowd({**POOL, **NOTHING_FORESEEN}, at_least={"preemptions": 12}))


@pytest.mark.slow
@pytest.mark.long
def test_many_streamed(many: Baseline) -> None:
    many.check(Streamed())


@pytest.mark.slow
@pytest.mark.long
def test_many_beside_neighbours_that_leave(many: Baseline) -> None:
    many.check(CoreProcess(neighbours_per_request=1))


@pytest.mark.slow
@pytest.mark.long
def test_many_over_http(many: Baseline, tmp_path: Path) -> None:
    with serving(many.model, many.fields, tmp_path) as url:
        assert_same(many.seen_over_http, ask_all(url, many.workload, stream=False))
        assert_same(many.seen_over_http, ask_all(url, shuffled(many.workload), stream=True))


@pytest.mark.slow
@pytest.mark.parametrize("alias", ["gemma3-270m", "qwen2.5-coder-0.5b"])
def test_other_models(alias: str) -> None:
    baseline = _baseline(alias, text_workload(6, 6, PLAIN_PROMPTS))
    baseline.check(Again({"max_num_batched_tokens": 48, "threads": 3, "block_size": 8}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kv_cache_dtype",
    [*(pytest.param(kind, marks=pytest.mark.long) for kind in ("fp32", "bf16", "fp8")), "int8"],
)
def test_other_kv_dtypes(dozen: Baseline, kv_cache_dtype: str) -> None:
    """Real numbers through each format; whatever else moves them about, tiny models show for each (`test_tiny`)."""
    baseline = _baseline("smollm2-135m", tuple(dozen.workload[i] for i in LONG), kv_cache_dtype)
    small = {"max_num_batched_tokens": 48, "threads": 3, "block_size": 8}
    ahead = {"async_scheduling": True, "long_prefill_token_threshold": 7, "block_size": 64}
    baseline.check(Again(small, at_least={"cached_tokens": 200}))
    baseline.check(Again(ahead, order=reverse, at_least={"copied_tokens": 30}))
    assert any(baseline.transcripts[name] != dozen.transcripts[name] for name in baseline.transcripts), (
        "no other format"
    )
