"""Same prompt, same vector, bit for bit: alone, in company, in chunks, after preemption, with a warm cache, by any
instructions."""

import base64
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import openai
import pytest

from octavo import LLM
from octavo.execution.pooling import Pooler
from tests.equality.baseline import INSTRUCTION_SETS, need_isa
from tests.equality.conftest import COMMON, TinyFile
from tests.equality.http import serving
from tests.equality.settings import NOTHING_FORESEEN, pool_of
from tests.equality.tiny_models import EVERY_FAMILY, POISONABLE
from tests.equality.vectors import Company, Vectors, Wanted, one_by_one, together, vectors_of, with_poison
from tests.equality.workload import failing, growing_workload, kernel_workload

AHEAD = {"async_scheduling": True}
SETTINGS = {
    "three at a time": Company({"max_num_seqs": 3}),
    "budget 16": Company({"max_num_batched_tokens": 16}),
    "chunks of 7": Company({"long_prefill_token_threshold": 7}),
    "no prefix cache": Company({"enable_prefix_caching": False}),
    "warm prefix cache": Company(again=True, at_least={"cached_tokens": 700}),
    "warm prefix cache, parts of blocks": Company({"block_size": 64}, again=True, at_least={"copied_tokens": 100}),
    "blocks of 1": Company({"block_size": 1}),
    "blocks of 256": Company({"block_size": 256}),
    "3 threads, budget 64": Company({"threads": 3, "max_num_batched_tokens": 64}),
    "planned a step ahead, budget 16": Company({**AHEAD, "max_num_batched_tokens": 16}),
    "planned a step ahead, warm prefix cache": Company(AHEAD, again=True, at_least={"cached_tokens": 700}),
}
ISAS = {isa: Company({"isa": isa, "max_num_batched_tokens": 100}) for isa in INSTRUCTION_SETS}
PREEMPTING: dict[str, dict[str, object]] = {
    "blocks of 4": {"block_size": 4},
    "no prefix cache": {"block_size": 4, "enable_prefix_caching": False},
    "planned a step ahead": {"block_size": 4, **AHEAD},
}
SMALL_POOLS = {"llama": 120, "qwen2": 120, "gemma3": 100}
"""Tokens that fit."""


class Vectored:
    """A model with vectors that were made one by one."""

    def __init__(self, model: str, fields: dict[str, object], *lengths: int, shared: int = 0) -> None:
        self.model, self.fields = model, fields
        with LLM(model, **fields) as llm:
            self.vocab_size, self.eos, self.isa = llm.info.vocab_size, llm.info.eos_token_ids, llm.info.isa
        self.wanted: tuple[Wanted, ...] = vectors_of(*lengths, vocab_size=self.vocab_size, shared=shared)
        self.expected: Vectors = one_by_one(model, fields, self.wanted)


Models = Callable[[str, str], Vectored]


@pytest.fixture(scope="module")
def models(tiny_file: TinyFile) -> Models:
    """Tiny models by name and KV format, with the vectors of prompts as long as the kernels treat apart."""

    @cache
    def model(name: str, kv_cache_dtype: str) -> Vectored:
        fields = {**COMMON, "kv_cache_dtype": kv_cache_dtype}
        return Vectored(tiny_file(name), fields, 1, 2, 64, 130, 137, 530, 640, shared=100)

    return model


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_every_setting(models: Models, family: str, setting: str) -> None:
    held = models(family, "fp16")
    neighbours = kernel_workload(held.vocab_size, held.eos)
    assert SETTINGS[setting].run(held.model, held.fields, held.wanted, neighbours) == held.expected


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_every_instruction_set(models: Models, family: str, isa: str) -> None:
    held = models(family, "fp16")
    need_isa(isa, held.isa)
    short = [wanted for wanted in held.wanted if len(wanted.prompt) < 200]
    seen = ISAS[isa].run(held.model, held.fields, short)
    assert seen == {wanted.name: held.expected[wanted.name] for wanted in short}


@pytest.mark.parametrize("setting", ["budget 16", "warm prefix cache, parts of blocks"])
def test_another_kv_format(models: Models, setting: str) -> None:
    held = models("llama", "int8")
    assert SETTINGS[setting].run(held.model, held.fields, held.wanted) == held.expected


@pytest.mark.parametrize("ahead", [{}, AHEAD], ids=str)
def test_neighbours_that_fail(models: Models, ahead: dict[str, object]) -> None:
    held = models("llama", "fp16")
    setting = Company({**ahead, "max_num_batched_tokens": 64}, at_least={"finished_error": 8})
    neighbours = failing(kernel_workload(held.vocab_size, held.eos))
    assert setting.run(held.model, held.fields, held.wanted, neighbours) == held.expected


@pytest.mark.parametrize("fields", [{}, {"max_num_batched_tokens": 16}, AHEAD], ids=str)
@pytest.mark.parametrize("name", POISONABLE)
def test_prompts_full_of_nan_end_alone(tiny_file: TinyFile, name: str, fields: dict[str, object]) -> None:
    """What is said of them does not depend on their company either."""
    held = Vectored(tiny_file(name), COMMON, 2, 60, 61, 130, shared=40)
    spoiled = with_poison(held.wanted)
    with LLM(held.model, **{**COMMON, **fields}) as llm:
        outputs = together(llm, [each for pair in zip(held.wanted, spoiled, strict=True) for each in pair], ())
    assert {w.name: o.vector for w, o in zip(held.wanted, outputs[::2], strict=True)} == held.expected
    assert all(output.finish_reason == "error" and not output.vector for output in outputs[1::2])
    alone = [problem_of(held.model, each) for each in spoiled]
    assert [output.error for output in outputs[1::2]] == alone


def problem_of(model: str, wanted: Wanted) -> str | None:
    """What is said of a request that comes alone."""
    with LLM(model, **COMMON) as llm:
        return llm.embed(list(wanted.prompt), wanted.params)[0].error


@pytest.mark.parametrize("setting", PREEMPTING)
@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_a_pool_so_small_that_requests_push_each_other_out(tiny_file: TinyFile, family: str, setting: str) -> None:
    """Growing answers take blocks from prompts in the middle of their chunks."""
    held = Vectored(tiny_file(family), COMMON, 30, 61, 75, 80, 66, 88, shared=20)
    small = {"max_model_len": 96, "max_num_batched_tokens": 10, **NOTHING_FORESEEN, **PREEMPTING[setting]}
    company = Company({**small, **pool_of(held.model, SMALL_POOLS[family])}, least_preempted=3)
    neighbours = growing_workload(held.vocab_size, held.eos)
    assert company.run(held.model, held.fields, held.wanted, neighbours) == held.expected


def test_over_http(models: Models, tmp_path: Path) -> None:
    """Another process, and both encodings."""
    held = models("llama", "fp16")
    fields = {**held.fields, "max_num_batched_tokens": 100}
    with serving(held.model, fields, tmp_path) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        for wanted in held.wanted:
            params = wanted.params
            for encoding in ("float", "base64"):
                answer = client.embeddings.create(
                    model=client.models.list().data[0].id,
                    input=[list(wanted.prompt)] * 3,
                    encoding_format=encoding,
                    dimensions=params.dimensions or openai.omit,
                    extra_body={"pooling": params.pooling, "normalize": params.normalize},
                )
                vectors = {_bytes_of(entry.embedding) for entry in answer.data}
                assert vectors == {held.expected[wanted.name]}, wanted.name


def _bytes_of(embedding: list[float] | str) -> bytes:
    if isinstance(embedding, str):
        return base64.b64decode(embedding)
    return np.array(embedding, "<f4").tobytes()


def test_the_vectors_are_what_they_should_be(models: Models) -> None:
    held = models("llama", "fp16")
    assert len(set(held.expected.values())) == len(held.wanted) - 1, "one token's last position is all there is"
    for wanted in held.wanted:
        vector = np.frombuffer(held.expected[wanted.name], "<f4")
        assert len(vector) == (wanted.params.dimensions or 96)
        assert np.isfinite(vector).all()
        length = np.linalg.norm(vector.astype(np.float64))
        assert (abs(length - 1) < 1e-6) == wanted.params.normalize


def test_a_sum_that_depends_on_the_chunks_is_seen(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: here a sum is rounded at the end of every chunk."""
    whole = Pooler._add_up

    def rounding(self: Pooler, counting: dict, sums: dict) -> dict:
        added = whole(self, counting, sums)
        return {index: replace(held, total=np.float64(np.float32(held.total))) for index, held in added.items()}

    monkeypatch.setattr(Pooler, "_add_up", rounding)
    held = models("llama", "fp16")
    seen = SETTINGS["chunks of 7"].run(held.model, held.fields, held.wanted)
    differing = [name for name, vector in seen.items() if vector != held.expected[name]]
    assert differing
    assert all(name.startswith("mean") for name in differing)
