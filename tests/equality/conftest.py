from collections.abc import Callable
from functools import cache

import pytest

from octavo import LLM
from octavo.execution.loader.tiny.write import write_tiny_model
from tests.equality.baseline import Baseline
from tests.equality.settings import Alone
from tests.equality.tiny_models import EXPERTS, FAMILIES, FORMATS, POISONABLE, write_poisoned_model
from tests.equality.workload import branching_workload, growing_workload, kernel_workload, tiny_workload

TinyFile = Callable[[str], str]
TinyBaseline = Callable[[str, str, str], Baseline]

COMMON = {"max_model_len": 640, "threads": 1, "max_num_batched_tokens": 2048, "kv_cache_memory_bytes": 64 * 2**20}
WORKLOADS = {
    "all": tiny_workload,
    "kernels": kernel_workload,
    "growing": growing_workload,
    "branching": branching_workload,
}


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> TinyFile:
    """The file of a tiny model by its name in `tiny_models`, written at its first use."""
    folder = tmp_path_factory.mktemp("equality")

    @cache
    def file(name: str) -> str:
        path = folder / f"{name}.gguf"
        if name in POISONABLE:
            return str(write_poisoned_model(path, POISONABLE[name]))
        return str(write_tiny_model(path, (FAMILIES | FORMATS | EXPERTS)[name]))

    return file


@pytest.fixture(scope="session")
def tiny_baseline(tiny_file: TinyFile) -> TinyBaseline:
    """The baseline of a tiny model with a workload and a KV dtype, by their names, made at its first use."""

    @cache
    def baseline(name: str, workload: str = "all", kv_cache_dtype: str = "fp16") -> Baseline:
        model, fields = tiny_file(name), COMMON | {"kv_cache_dtype": kv_cache_dtype}
        with LLM(model, **fields) as llm:
            requests = WORKLOADS[workload](llm.info.vocab_size, llm.info.eos_token_ids)
        return Baseline.of(model, fields, requests, Alone())

    return baseline
