"""`LLM.embed` over the scripted executor: order, parameters, refusals, faults, and others beside."""

import threading

import numpy as np
import pytest

from octavo import PoolingParams, SamplingParams
from octavo.errors import InvalidRequestError
from octavo.execution.scripted import VECTOR_SIZE
from tests.engine.scripted import scripted_llm

MEAN = PoolingParams(pooling="mean")


def test_vectors_come_in_the_order_of_the_prompts() -> None:
    with scripted_llm() as llm:
        prompts = ["a", "a longer text", [1, 2, 3], "b"]
        outputs = llm.embed(prompts)
        assert [output.prompt for output in outputs] == ["a", "a longer text", None, "b"]
        assert [output.prompt_token_ids for output in outputs[1:3]] == [tuple(b"a longer text"), (1, 2, 3)]
        assert [output.finish_reason for output in outputs] == ["stop"] * 4
        assert len({output.vector for output in outputs}) == 4
        assert [llm.embed(prompt)[0].vector for prompt in prompts] == [output.vector for output in outputs]


def test_numbers_are_those_of_the_bytes() -> None:
    with scripted_llm() as llm:
        (output,) = llm.embed("a")
        assert len(output.embedding) == VECTOR_SIZE
        assert output.embedding == np.frombuffer(output.vector, "<f4").tolist()


def test_parameters_are_one_for_all_or_one_each() -> None:
    with scripted_llm() as llm:
        last, mean = llm.embed(["abc", "abc"], [PoolingParams(), MEAN])
        assert last.vector != mean.vector
        assert [output.vector for output in llm.embed(["abc", "abc"], MEAN)] == [mean.vector] * 2
        for wrong in ([MEAN], [MEAN] * 3, [MEAN, SamplingParams()], "mean", {"pooling": "mean"}):
            with pytest.raises(InvalidRequestError, match="params"):
                llm.embed(["abc", "abc"], wrong)  # type: ignore[arg-type]


def test_a_prompt_may_fill_the_context_and_not_more() -> None:
    with scripted_llm(max_model_len=40) as llm:
        (output,) = llm.embed([[1] * 40])
        assert output.error is None
        assert output.vector
        with pytest.raises(InvalidRequestError, match="41 tokens': the context holds 40"):
            llm.embed([[1] * 40, [1] * 41])
        with pytest.raises(InvalidRequestError, match="at least one token"):
            llm.embed([[]])
        with pytest.raises(InvalidRequestError, match="the model's vectors have 0 numbers"):
            llm.embed("a", PoolingParams(dimensions=1))


def test_what_never_fits_the_kv_memory_is_told_with_the_arithmetic() -> None:
    with scripted_llm(num_blocks=9, max_model_len=64) as llm:
        good, refused = llm.embed([[1] * 32, [1] * 33])
        assert good.vector
        assert not refused.vector
        assert refused.error_status == 400
        assert refused.error is not None
        assert "33 prompt tokens need 9 KV blocks" in refused.error


def test_a_fault_ends_one_request_and_no_other() -> None:
    def faults(request_id: str, num_computed: int) -> str | None:
        return "a row of NaN" if request_id == "local-1" else None

    with scripted_llm(faults=faults) as llm:
        outputs = llm.embed(["a", "b", "c"])
        assert [output.error for output in outputs] == [None, "a row of NaN", None]
        assert [bool(output.vector) for output in outputs] == [True, False, True]
        assert llm.load().num_free_blocks == llm.load().num_blocks


def test_last_takes_prefix_hits_and_mean_takes_none() -> None:
    with scripted_llm() as llm:
        prompt = [list(range(50))]
        cold, warm = llm.embed(prompt)[0], llm.embed(prompt)[0]
        assert (cold.num_cached_tokens, warm.num_cached_tokens) == (0, 48)
        assert warm.vector == cold.vector
        (mean,) = llm.embed(prompt, MEAN)
        assert mean.num_cached_tokens == 0
        assert mean.stats is not None
        assert mean.stats.num_computed_tokens == 50
        (answer,) = llm.generate(prompt, SamplingParams(max_tokens=1))
        assert answer.num_cached_tokens == 48


def test_answers_of_other_callers_are_the_same_beside() -> None:
    with scripted_llm(max_num_batched_tokens=16) as llm:
        params = SamplingParams(max_tokens=30, seed=3, ignore_eos=True)
        alone = [choice.token_ids for choice in llm.generate(["abcdefgh"], params)[0].outputs]
        texts = [f"{number} " * 20 for number in range(30)]
        expected = [output.vector for output in llm.embed(texts, MEAN)]
        seen: list[object] = []
        caller = threading.Thread(target=lambda: seen.append([output.vector for output in llm.embed(texts, MEAN)]))
        caller.start()
        beside = [choice.token_ids for choice in llm.generate(["abcdefgh"], params)[0].outputs]
        caller.join()
        assert beside == alone
        assert seen == [expected]


def test_vectors_count_as_requests_that_ended_well_and_as_no_tokens() -> None:
    with scripted_llm() as llm:
        llm.embed(["text"] * 50)
        load = llm.load()
        assert load.counters["generation_tokens"] == 0
        assert load.counters["finished_stop"] == 50
        assert load.counters["prompt_tokens"] == 50 * 4
