"""The arithmetic of the benchmarks, on ledgers that can be worked out by hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from octavo import LLM
from octavo.bench.datasets import Step, Talk, random_prompts, random_talks
from octavo.bench.latency import measure_latency, spread
from octavo.bench.load.settings import DatasetSettings
from octavo.bench.report import as_lines, complete_figures, write_json
from octavo.bench.throughput import measure_throughput
from octavo.engine.output import CompletionOutput, EngineInfo, GenerationOutput
from octavo.errors import ConfigError, InvalidRequestError, RequestFailedError
from octavo.request.outputs import FinishReason, RequestStats
from octavo.request.params import SamplingParams

INFO = EngineInfo(
    model="stub",
    served_model_names=("stub",),
    architecture="none",
    max_model_len=100,
    vocab_size=50,
    eos_token_ids=(),
    block_size=16,
    num_blocks=10,
    kv_bytes_per_token=1,
    weight_bytes=1,
    max_logprobs=0,
    max_num_seqs=4,
    max_num_batched_tokens=16,
    threads=1,
    isa="portable",
)


class StubLLM:
    """Answers at once, with ledgers made up: prefill 2 s, then 0.5 s per token; request i starts i/10 s later."""

    info = INFO

    def __init__(self, missing: int = 0, saved: Sequence[int] = ()) -> None:
        self.batches: list[list[list[int]]] = []
        self._saved = saved
        self._missing = missing

    def generate(self, prompts: list[list[int]], params: list[SamplingParams]) -> list[GenerationOutput]:
        self.batches.append(prompts)
        assert all(each.ignore_eos and each.greedy for each in params)
        counts = [each.max_tokens or 0 for each in params]
        return [self._answer(i, *asked) for i, asked in enumerate(zip(prompts, counts, strict=True))]

    def _answer(self, index: int, prompt: list[int], count: int) -> GenerationOutput:
        begin = index / 10
        stats = RequestStats(
            arrival_s=0,
            first_scheduled_s=begin,
            first_token_s=begin + 2,
            finished_s=begin + 2 + 0.5 * (count - 1),
            num_prompt_tokens=len(prompt),
            num_cached_tokens=len(prompt) // 4,
            num_output_tokens=count,
        )
        if self._saved:  # drafts of five, of which one too few was saved each time
            stats.num_drafts, stats.num_draft_tokens = 2, 10
            stats.num_saved_steps = self._saved[index]
            stats.num_accepted_draft_tokens = 1 + self._saved[index]
        choice = CompletionOutput(
            index=0,
            text="",
            token_ids=(1,) * (count - self._missing),
            logprobs=None,
            finish_reason=FinishReason.LENGTH,
            stats=stats,
        )
        return GenerationOutput(request_id="r", prompt=None, prompt_token_ids=tuple(prompt), outputs=(choice,))


def talks(count: int, length: int, output_len: int) -> list[Talk]:
    settings = DatasetSettings(num_prompts=count, input_len=length, output_len=output_len, seed=1)
    return random_talks(settings, INFO.vocab_size)


def ticking(step: float) -> Any:
    """A clock that advances by `step` per look."""
    now = iter(range(1000))
    return lambda: next(now) * step


def test_throughput_counts_everything_over_the_wall_time() -> None:
    stub = StubLLM()
    asked = talks(6, 20, output_len=10)
    figures = measure_throughput(cast(LLM, stub), asked, clock=ticking(3.0))
    assert figures["elapsed_s"] == 3
    assert figures["output_tokens_per_s"] == 60 / 3
    assert figures["total_tokens_per_s"] == (60 + 120) / 3
    assert figures["prefill_tokens_per_s"] == 6 * 15 / 3
    assert figures["requests_per_s"] == 2
    assert figures["prefix_hit_rate"] == 0.25
    assert figures["concurrency"] == 4
    assert figures["peak_memory_bytes"] > 10**6
    warm_up, measured = stub.batches
    assert measured == [talk[0].token_ids for talk in asked]
    assert warm_up[0] not in measured
    assert (figures["num_prompts"], figures["input_len"], figures["output_len"]) == (6, 20, 10)


def test_talks_bring_what_was_said_and_wait_for_answers() -> None:
    """The first talk has two requests, of 6 and, with the answer of 3 ones, of 13 tokens; the second one of 5."""
    stub = StubLLM()
    asked: list[Talk] = [(Step([9] * 6, 3), Step([8] * 4, 2)), (Step([7] * 5, 4),)]
    figures = measure_throughput(cast(LLM, stub), asked, clock=ticking(1.0))
    _, first, second = stub.batches
    assert first == [[9] * 6, [7] * 5]
    assert second == [[9] * 6 + [1] * 3 + [8] * 4]
    assert (figures["num_prompts"], figures["input_len"], figures["output_len"]) == (3, 8, 3)
    assert (figures["output_tokens_per_s"], figures["total_tokens_per_s"]) == (9, 9 + 24)
    assert figures["prefill_tokens_per_s"] == 24 - (1 + 1 + 3)


def test_latency_of_talks_counts_each_round() -> None:
    stub = StubLLM()
    asked: list[Talk] = [(Step([9] * 8, 3), Step([8] * 5, 3))] * 4
    figures = measure_latency(cast(LLM, stub), asked, batch_size=2, output_len=3)
    assert [len(batch) for batch in stub.batches] == [2] * 4
    assert figures["repeats"] == 2
    assert figures["input_len"] == (8 + 16) / 2
    assert figures["prefix_hit_rate"] == (2 + 4) / (8 + 16)
    rates = [2 * (8 - 2) / 2.1, 2 * (16 - 4) / 2.1]
    assert figures["prefill_tokens_per_s"]["median"] == pytest.approx(sum(rates) / 2)


def test_latency_leaves_the_first_batch_out_and_splits_prefill_from_steps() -> None:
    stub = StubLLM()
    figures = measure_latency(cast(LLM, stub), talks(6, 20, 11), batch_size=2, output_len=11)
    assert figures["repeats"] == 2
    assert len(stub.batches) == 3
    assert figures["prefill_s"] == pytest.approx({"median": 2.1, "p10": 2.1, "p90": 2.1})
    assert figures["prefill_tokens_per_s"]["median"] == pytest.approx(30 / 2.1)  # a quarter was cached
    assert figures["decode_step_s"]["median"] == pytest.approx(0.5)
    assert figures["decode_tokens_per_s"]["median"] == pytest.approx(4)


def test_a_step_is_a_step_also_where_it_brings_several_tokens() -> None:
    """Two requests of 11 tokens in 5 s: the one whose drafts saved less took 1 + 4 steps."""
    stub = StubLLM(saved=(8, 6))
    figures = measure_latency(cast(LLM, stub), talks(4, 20, 11), batch_size=2, output_len=11)
    assert figures["decode_step_s"]["median"] == pytest.approx(5 / 4)
    assert figures["decode_tokens_per_s"]["median"] == pytest.approx(20 / 5)
    assert (figures["draft_tokens"], figures["saved_steps"], figures["wasted_draft_tokens"]) == (20, 14, 6)
    assert (figures["accepted_draft_tokens"], figures["mean_acceptance_length"]) == (16, 1 + 16 / 4)


def test_throughput_tells_what_came_of_drafts() -> None:
    asked = talks(2, 20, output_len=10)
    figures = measure_throughput(cast(LLM, StubLLM(saved=(8, 6))), asked, clock=ticking(3.0))
    assert (figures["draft_tokens"], figures["accepted_draft_tokens"], figures["saved_steps"]) == (20, 16, 14)
    assert "draft_tokens" not in measure_throughput(cast(LLM, StubLLM()), asked, clock=ticking(3.0))


def test_a_measurement_that_lacks_tokens_is_none() -> None:
    with pytest.raises(RequestFailedError, match="3 of 4 tokens came"):
        measure_throughput(cast(LLM, StubLLM(missing=1)), [(Step([1, 2], 4),)])


def test_what_does_not_fit_is_told_before_it_runs() -> None:
    with pytest.raises(
        InvalidRequestError, match="input_len=95: with --output-len 10 the context of 100 tokens leaves 90"
    ):
        measure_throughput(cast(LLM, StubLLM()), [(Step([1] * 95, 10),)])
    with pytest.raises(ConfigError, match="output_len=1: must be at least 2"):
        measure_latency(cast(LLM, StubLLM()), talks(1, 1, 1), batch_size=1, output_len=1)


def test_spread() -> None:
    assert spread([float(value) for value in range(11)]) == {"median": 5, "p10": 1, "p90": 9}
    assert spread([4.0]) == {"median": 4, "p10": 4, "p90": 4}
    assert spread([1.0, 3.0])["median"] == 2


def test_prompts_are_the_same_everywhere_and_differ_by_seed() -> None:
    settings = DatasetSettings(num_prompts=3, input_len=5, output_len=2, seed=7)
    made = random_talks(settings, 1000)
    assert [talk[0].token_ids for talk in made] == random_prompts(3, 5, 1000, seed=7)
    assert made == [
        (Step([331, 970, 154, 404, 666], 2),),
        (Step([49, 74, 840, 548, 96], 2),),
        (Step([374, 596, 59, 931, 519], 2),),
    ]
    assert made != random_talks(replace(settings, seed=8), 1000)
    various = random_talks(replace(settings, num_prompts=50, range_ratio=0.6), 1000)
    assert {len(talk[0].token_ids) for talk in various} == set(range(2, 9))


def test_reports(tmp_path: Path) -> None:
    figures = complete_figures(
        {"model": "stub", "prefill_s": {"median": 0.123456}}, INFO, {"threads": 1, "isa": "avx2"}
    )
    assert figures["config"]["given"] == {"threads": 1, "isa": "avx2"}
    assert figures["config"]["engine"]["block_size"] == 16
    assert {"cpu", "usable_cores", "memory_bytes"} <= set(figures["hardware"])
    assert {"octavo", "python", "numpy"} <= set(figures["versions"])
    assert "prefill_s                median 0.1235" in as_lines(figures)
    write_json(figures, tmp_path / "x.json")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_json(figures, tmp_path / "missing" / "x.json")
