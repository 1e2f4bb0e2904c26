"""A suite that cannot fail proves nothing: here something small is broken, and the comparison must say so."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from octavo.decoding.sampler import NativeSampler
from octavo.execution.native.executor import NativeExecutor
from octavo.execution.protocols import Float32, StepBatch
from octavo.kv.hashing import BlockHash, BlockHasher
from octavo.request.outputs import LogprobRow
from octavo.request.params import SamplingParams
from tests.equality.conftest import TinyBaseline
from tests.equality.settings import Crowd
from tests.equality.transcript import Answer, Transcripts, assert_same, differences
from tests.equality.workload import Workload

Lines = Callable[..., list[str]]


@pytest.fixture
def crowd(tiny_baseline: TinyBaseline) -> Lines:
    """Runs the llama workload all at once; gives the lines of the comparison."""
    baseline = tiny_baseline("llama")

    def lines(workload: Workload | None = None, **fields: object) -> list[str]:
        seen = Crowd(fields).run(baseline.model, baseline.fields, workload or baseline.workload)
        return differences(baseline.transcripts, seen)

    return lines


def test_nothing_broken_gives_no_line(crowd: Lines) -> None:
    assert crowd() == []


def test_another_seed_is_named_and_nothing_else(crowd: Lines, tiny_baseline: TinyBaseline) -> None:
    workload = tuple(
        replace(request, params=request.params.replace(seed=99)) if request.name == "top_p" else request
        for request in tiny_baseline("llama").workload
    )
    (line,) = crowd(workload)
    assert line.startswith("request 'top_p': choice 0, token 0: expected ")


def test_another_kv_dtype_shows_in_logprobs(crowd: Lines) -> None:
    lines = crowd(kv_cache_dtype="bf16")
    assert len(lines) > 10
    assert any("logprobs: expected" in line for line in lines)


def test_a_last_bit_that_depends_on_company_is_seen(crowd: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = NativeExecutor.run

    def run(self: NativeExecutor, batch: StepBatch) -> Float32:
        logits = whole(self, batch).copy()
        return np.nextafter(logits, np.float32(np.inf)) if len(batch.seq_starts) > 10 else logits

    monkeypatch.setattr(NativeExecutor, "run", run)
    assert any("logprobs: expected" in line for line in crowd())


def test_blocks_shared_by_prompts_that_differ_are_seen(crowd: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    def extend(
        self: BlockHasher, hashes: list[BlockHash], token_ids: Sequence[int], num_blocks: int, salt: bytes = b""
    ) -> None:
        hashes.extend(bytes([position]) * 32 for position in range(len(hashes), num_blocks))

    monkeypatch.setattr(BlockHasher, "extend", extend)
    assert len(crowd()) > 5
    assert crowd(enable_prefix_caching=False) == []


def test_noise_that_starts_anew_after_preemption_is_seen(
    tiny_baseline: TinyBaseline, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = NativeSampler.add

    def add(
        self: NativeSampler,
        slot: int,
        params: SamplingParams,
        eos_token_ids: Sequence[int],
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
    ) -> None:
        whole(self, slot, params, eos_token_ids, [*prompt_token_ids, *output_token_ids], ())

    baseline = tiny_baseline("llama", "growing")
    fields = {"max_model_len": 96, "num_kv_blocks": 10, "admission_conservativeness": 0.0}
    baseline.check(Crowd(fields, at_least={"preemptions": 10}))
    monkeypatch.setattr(NativeSampler, "add", add)
    with pytest.raises(AssertionError, match=r"request 'growing \d+': choice 0, token \d+: expected \d+, got \d+"):
        baseline.check(Crowd(fields))


def test_a_setting_that_brings_nothing_about_fails(tiny_baseline: TinyBaseline) -> None:
    with pytest.raises(AssertionError, match=r"preemptions grew by 0\.0, the setting needs 1"):
        tiny_baseline("llama", "kernels").check(Crowd(at_least={"preemptions": 1}))


def _scored(*logprobs: float, text: str = "ab") -> Transcripts:
    answer = Answer(1)
    answer.choices[0].token_ids = list(range(len(logprobs)))
    answer.choices[0].logprobs = [LogprobRow([i], [logprob], 1) for i, logprob in enumerate(logprobs)]
    answer.choices[0].text = text
    return {"r": answer.transcript()}


@pytest.mark.parametrize(
    ("actual", "line"),
    [
        (_scored(-1.0, math.nextafter(-0.5, 0)), "choice 0, token 1, logprobs: expected "),
        (_scored(-1.0), "choice 0, token 1 | choice 0, number of tokens: expected 1, got 1; 5 facts differ"),
        (_scored(-1.0, -0.5, text="aB"), "choice 0, text: expected 'ab', got 'aB'; 1 facts differ"),
        ({}, "prompt | nothing: expected (), got 'nothing'; 8 facts differ"),
    ],
)
def test_the_first_difference_is_named(actual: Transcripts, line: str) -> None:
    expected = _scored(-1.0, -0.5)
    assert_same(expected, expected)
    with pytest.raises(AssertionError) as raised:
        assert_same(expected, actual)
    assert str(raised.value).startswith("1 of 1 requests differ:\nrequest 'r': " + line)


def test_zero_has_a_sign() -> None:
    assert differences(_scored(0.0), _scored(-0.0))
    assert not differences(_scored(math.nan), _scored(math.nan))
