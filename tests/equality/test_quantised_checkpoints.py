"""Same request, same tokens on quantised checkpoints of Hugging Face: one of each kind."""

from functools import cache
from pathlib import Path

import pytest

from octavo import LLM
from octavo.execution.loader.tiny import TinyModel
from tests.equality.baseline import INSTRUCTION_SETS, Baseline, need_isa
from tests.equality.conftest import COMMON
from tests.equality.settings import NOTHING_FORESEEN, AloneUncached, Crowd, Setting, pool_of
from tests.equality.workload import growing_workload, shuffled
from tests.execution.quant_methods.checkpoints import write
from tests.execution.quant_methods.kinds import KINDS

MODELS = {
    "awq": TinyModel(hidden=128, heads=6, kv_heads=2, head_dim=64, intermediate=192),
    "gptq, act-order, asymmetric": TinyModel(
        architecture="qwen2", hidden=128, heads=4, kv_heads=1, head_dim=64, intermediate=192
    ),
    "W4A16": TinyModel(hidden=128, heads=4, kv_heads=2, head_dim=64, intermediate=192),
    "W8A8": TinyModel(hidden=96, heads=4, kv_heads=4, head_dim=64, intermediate=160),
    "fp8 per block": TinyModel(hidden=160, heads=3, kv_heads=1, head_dim=64, intermediate=192),
}
POOL_TOKENS, PREEMPTIONS = 136, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quantised")


@cache
def baseline(kind: str, folder: Path) -> Baseline:
    path = folder / kind
    write(path, KINDS[kind][0], MODELS[kind])
    with LLM(str(path), **COMMON) as llm:
        workload = growing_workload(llm.info.vocab_size, llm.info.eos_token_ids)[::2]
    return Baseline.of(str(path), COMMON, workload, AloneUncached())


SETTINGS: dict[str, Setting] = {
    "shuffled, budget 16, 3 threads": Crowd({"max_num_batched_tokens": 16, "threads": 3}, order=shuffled),
    **{isa: Crowd({"isa": isa, "long_prefill_token_threshold": 7}) for isa in INSTRUCTION_SETS},
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("kind", MODELS)
def test_settings(folder: Path, kind: str, setting: str) -> None:
    if setting in INSTRUCTION_SETS:
        need_isa(setting, baseline(kind, folder).isa)
    baseline(kind, folder).check(SETTINGS[setting])


@pytest.mark.parametrize("kind", MODELS)
def test_requests_that_push_each_other_out(folder: Path, kind: str) -> None:
    alone = baseline(kind, folder)
    fields = {**NOTHING_FORESEEN, **pool_of(alone.model, POOL_TOKENS), "block_size": 4, "max_model_len": 96}
    alone.check(Crowd(fields, at_least={"preemptions": PREEMPTIONS}))
