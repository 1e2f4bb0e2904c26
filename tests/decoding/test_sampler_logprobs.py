"""Logprobs: from the raw logits, the chosen token first, ranks by strictly greater logits, prompt scores alike."""

import math

import numpy as np
import pytest

from octavo.decoding.reference import logprob_row
from octavo.decoding.sampler import NativeSampler
from octavo.request.outputs import LogprobRow
from octavo.request.params import SamplingParams
from tests.decoding.sampling_support import KINDS, MakeSampler, random_logits

VOCAB, VALID = 500, 490


def sample_one(sampler: NativeSampler, logits: np.ndarray, params: SamplingParams) -> LogprobRow:
    sampler.add(0, params, [], [7, 7, 8], [])
    row = sampler.sample(logits[None], np.zeros(1, np.int32)).logprobs[0]
    sampler.remove(0)
    assert row is not None
    return row


def assert_close(row: LogprobRow, want: LogprobRow) -> None:
    assert (row.token_ids, row.rank) == (want.token_ids, want.rank)
    np.testing.assert_allclose(row.logprobs, want.logprobs, rtol=2e-7, atol=2e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_logprobs", [0, 1, 5, 64, 400])
def test_logprobs_are_those_of_the_raw_logits(make_sampler: MakeSampler, kind: str, num_logprobs: int) -> None:
    sampler = make_sampler(VOCAB, VALID)
    changed = {
        "temperature": 0.3,
        "top_k": 3,
        "repetition_penalty": 3.0,
        "logit_bias": {3: 50.0},
        "allowed_token_ids": (3, 4, 7),
    }
    for logits in random_logits(np.random.default_rng(1), 3, VOCAB, kind):
        for fields in ({}, {"temperature": 0.0}, changed):
            params = SamplingParams(seed=1, logprobs=num_logprobs, **fields)
            if "allowed_token_ids" in fields and not np.isfinite(logits[[3, 4, 7]]).any():
                continue
            row = sample_one(sampler, logits, params)
            assert_close(row, logprob_row(logits, VALID, row.token_ids[0], num_logprobs))


def test_values_are_float32_and_sum_to_one(make_sampler: MakeSampler) -> None:
    logits = random_logits(np.random.default_rng(2), 1, VOCAB, "normal")[0]
    row = sample_one(make_sampler(VOCAB), logits, SamplingParams(seed=1, logprobs=VOCAB))
    assert row.logprobs == np.array(row.logprobs, np.float32).tolist()
    assert abs(math.fsum(math.exp(value) for value in row.logprobs[1:]) - 1) < 1e-6
    assert sorted(row.token_ids[1:]) == list(range(VOCAB))
    assert row.logprobs[1:] == sorted(row.logprobs[1:], reverse=True)


def test_ties_are_listed_by_id_and_share_a_rank(make_sampler: MakeSampler) -> None:
    logits = np.array([1.0, 3.0, 2.0, 3.0, 2.0, 0.0, -0.0, 0.0], np.float32)
    rows = make_sampler(8).score(np.stack([logits] * 8), np.arange(8, dtype=np.int32), 8)
    assert rows[0].token_ids == [0, 1, 3, 2, 4, 0, 5, 6, 7]
    assert [row.rank for row in rows] == [5, 1, 3, 1, 3, 6, 6, 6]


def test_a_list_cut_between_ties_keeps_the_lower_ids(make_sampler: MakeSampler) -> None:
    logits = np.zeros((1, 1000), np.float32)
    for count in (1, 3, 64, 65, 999):
        row = make_sampler(1000).score(logits, np.array([999], np.int32), count)[0]
        assert row.token_ids == [999, *range(count)]
        assert row.rank == 1


def test_the_chosen_token_is_first_even_if_unlikely(make_sampler: MakeSampler) -> None:
    logits = np.array([[5.0, 4.0, 3.0, -2.0]], np.float32)
    row = make_sampler(4).score(logits, np.array([3], np.int32), 2)[0]
    assert (row.token_ids, row.rank) == ([3, 0, 1], 4)
    assert row.logprobs[0] == pytest.approx(-2 - math.log(sum(math.exp(x) for x in (5, 4, 3, -2))), abs=1e-6)


def test_padding_counts_in_the_sum_but_is_never_listed(make_sampler: MakeSampler) -> None:
    logits = np.array([[1.0, 0.0, 9.0, 9.0]], np.float32)
    row = make_sampler(4, 2).score(logits, np.array([0], np.int32), 4)[0]
    assert (row.token_ids, row.rank) == ([0, 0, 1], 1)
    total = math.log(math.exp(1) + 1 + 2 * math.exp(9))
    assert row.logprobs[1:] == pytest.approx([1 - total, -total], abs=1e-6)


def test_scores_equal_sampled_logprobs_bit_for_bit(make_sampler: MakeSampler) -> None:
    sampler = make_sampler(VOCAB, VALID)
    for kind in KINDS:
        logits = random_logits(np.random.default_rng(4), 1, VOCAB, kind)
        sampled = sample_one(sampler, logits[0], SamplingParams(seed=4, logprobs=7))
        assert sampler.score(logits, np.array(sampled.token_ids[:1], np.int32), 7) == [sampled]


def test_infinite_logits_share_the_probability(make_sampler: MakeSampler) -> None:
    logits = np.array([[np.inf, 1.0, np.inf, -np.inf]], np.float32)
    row = make_sampler(4).score(logits, np.array([1], np.int32), 4)[0]
    assert row.token_ids == [1, 0, 2, 1]
    assert row.logprobs == [-np.inf, np.float32(-math.log(2)), np.float32(-math.log(2)), -np.inf]
    assert row.rank == 3


@pytest.mark.parametrize("logits", [[np.nan, 1.0], [1.0, np.nan], [-np.inf, -np.inf]])
def test_a_row_without_a_distribution_scores_nan_and_spares_the_others(
    make_sampler: MakeSampler, logits: list[float]
) -> None:
    bad, good = make_sampler(2).score(np.array([logits, [0.0, 0.0]], np.float32), np.array([1, 1], np.int32), 2)
    assert math.isnan(bad.logprobs[0])
    assert (bad.token_ids, bad.rank) == ([1], 0)
    assert good == LogprobRow([1, 0, 1], [np.float32(-math.log(2))] * 3, 1)


def test_only_requests_that_asked_get_logprobs(make_sampler: MakeSampler) -> None:
    sampler = make_sampler(VOCAB)
    logits = random_logits(np.random.default_rng(6), 3, VOCAB, "normal")
    for slot, logprobs in enumerate((None, 0, 3)):
        sampler.add(slot, SamplingParams(temperature=0.0, logprobs=logprobs), [], [], [])
    rows = sampler.sample(logits, np.arange(3, dtype=np.int32)).logprobs
    assert rows[0] is None
    assert [len(row.token_ids) for row in rows[1:] if row] == [1, 4]
    assert sampler.sample(logits[:1], np.zeros(1, np.int32)).logprobs == []
