"""Rows behind drafts are drawn as if they came alone, and count as long as the drafts are right."""

import numpy as np
import pytest

from octavo.request.params import SamplingParams
from octavo.request.reasoning import ReasoningSpec

VOCAB = 200
LENGTH = 24
REQUESTS = {
    "greedy": SamplingParams(temperature=0.0, logprobs=2),
    "seeded": SamplingParams(seed=3, logprobs=1),
    "penalties": SamplingParams(
        seed=4, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.4, logprobs=0
    ),
    "bad words": SamplingParams(seed=5, bad_words_token_ids=tuple((a, b) for a in range(60) for b in range(0, 200, 3))),
    "min_tokens": SamplingParams(seed=6, min_tokens=9, stop_token_ids=(7,), logit_bias={7: 50.0}),
    "few": SamplingParams(seed=7, top_k=5, top_p=0.9, min_p=0.01, allowed_token_ids=tuple(range(40, 90))),
    "a budget": SamplingParams(
        seed=8, reasoning=ReasoningSpec(ends=((11,),), is_open=True, budget=6, forced_end=(12, 13, 11))
    ),
}


def logits_of(position: int) -> np.ndarray:
    return np.random.default_rng(position).normal(0, 2, VOCAB).astype(np.float32)


def one_by_one(sampler, params):
    sampler.add(0, params, [9], [1, 2, 3], [])
    rows = [sampler.sample(logits_of(place)[None], np.zeros(1, np.int32)) for place in range(LENGTH)]
    sampler.remove(0)
    tokens = [int(row.token_ids[0]) for row in rows]
    return tokens, [row.logprobs[0] if row.logprobs else None for row in rows]


def in_runs(sampler, params, drafts_at):
    """Runs of rows with the drafts that `drafts_at(place)` gives."""
    sampler.add(0, params, [9], [1, 2, 3], [])
    tokens, logprobs = [], []
    while len(tokens) < LENGTH:
        drafts = np.array([*drafts_at(len(tokens)), -1], np.int32)
        logits = np.stack([logits_of(len(tokens) + i) for i in range(len(drafts))])
        rows = sampler.verify(logits, np.zeros(len(drafts), np.int32), drafts)
        assert not rows.errors
        count = int((rows.token_ids >= 0).sum())
        assert count >= 1 and (rows.token_ids[:count] >= 0).all()
        tokens += rows.token_ids[:count].tolist()
        logprobs += rows.logprobs[:count] if rows.logprobs else [None] * count
    sampler.remove(0)
    return tokens[:LENGTH], logprobs[:LENGTH]


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("num_right", [0, 1, 3, 7])
def test_any_run_gives_what_single_rows_give(make_sampler, name, num_right):
    sampler, params = make_sampler(VOCAB), REQUESTS[name]
    expected = one_by_one(sampler, params)
    right, ends = expected[0], {9, *params.stop_token_ids}

    def drafts_at(place):
        drafts = right[place : place + num_right]
        stop = next((i for i, token in enumerate(drafts) if token in ends), len(drafts))
        return [*drafts[:stop], (right[min(place + stop, LENGTH - 1)] + 1) % VOCAB]

    assert in_runs(sampler, params, drafts_at) == expected


def test_what_ends_the_request_ends_its_run(make_sampler):
    sampler = make_sampler(VOCAB)
    sampler.add(0, SamplingParams(temperature=0.0, stop_token_ids=(5,)), [9], [1], [])
    logits = np.zeros((3, VOCAB), np.float32)
    logits[0, 4] = logits[1, 5] = logits[2, 6] = 1.0
    rows = sampler.verify(logits, np.zeros(3, np.int32), np.array([4, 5, -1], np.int32))
    assert rows.token_ids.tolist() == [4, 5, -1]
    assert sampler.num_worth_running(0, [4, 3, 5, 6]) == 2
    assert sampler.num_worth_running(0, [4, VOCAB, 6]) == 1


def test_a_row_without_a_number_counts_only_as_the_first(make_sampler):
    sampler = make_sampler(VOCAB)
    sampler.add(0, SamplingParams(temperature=0.0), [9], [1], [])
    logits = np.zeros((2, VOCAB), np.float32)
    logits[0, 4], logits[1, 3] = 1.0, np.nan
    rows = sampler.verify(logits, np.zeros(2, np.int32), np.array([4, -1], np.int32))
    assert rows.token_ids.tolist() == [4, -1] and not rows.errors
    rows = sampler.verify(logits[::-1].copy(), np.zeros(2, np.int32), np.array([4, -1], np.int32))
    assert rows.token_ids.tolist() == [-1, -1] and "NaN" in rows.errors[0]


def test_runs_are_checked(make_sampler):
    sampler = make_sampler(VOCAB)
    for slot in (0, 1):
        sampler.add(slot, SamplingParams(temperature=0.0), [9], [1], [])
    logits = np.zeros((2, VOCAB), np.float32)
    with pytest.raises(ValueError, match="breaks a run"):
        sampler.verify(logits, np.array([0, 1], np.int32), np.array([4, -1], np.int32))
    with pytest.raises(ValueError, match="no row"):
        sampler.verify(logits, np.array([0, 0], np.int32), np.array([4, 5], np.int32))
    with pytest.raises(ValueError, match="two rows"):
        sampler.verify(logits, np.array([0, 0], np.int32), np.array([-1, -1], np.int32))


@pytest.mark.parametrize("temperature", [0.3, 1.0])
@pytest.mark.parametrize("num_slots", [1, 2, 4, 8])
def test_tokens_behind_drafts_are_distributed_as_the_softmax_says(make_sampler, temperature, num_slots):
    """Chi-square over the row behind an accepted draft, and over the first row, whatever its draft is."""
    vocab, draws = 8, 4000
    sampler = make_sampler(vocab)
    logits = np.random.default_rng(1).normal(0, 1, (2, vocab)).astype(np.float32)
    weights = np.exp(logits.astype(np.float64) / temperature)
    expected = weights / weights.sum(axis=1, keepdims=True)
    counts = np.zeros((2, vocab))
    slots = np.repeat(np.arange(num_slots, dtype=np.int32), 2)
    drafts = np.tile(np.array([int(logits[0].argmax()), -1], np.int32), num_slots)
    for start in range(0, draws, num_slots):
        for slot in range(num_slots):
            sampler.add(slot, SamplingParams(seed=start + slot, temperature=temperature), [], [1], [])
        rows = sampler.verify(np.tile(logits, (num_slots, 1)), slots, drafts)
        for first, second in rows.token_ids.reshape(-1, 2):
            counts[0, first] += 1
            if second >= 0:
                counts[1, second] += 1
        for slot in range(num_slots):
            sampler.remove(slot)
    assert counts[1].sum() == counts[0, drafts[0]] > 500
    for seen, wanted in zip(counts, expected, strict=True):
        wanted = wanted * seen.sum()
        likely = wanted >= 5
        chi_square = ((seen - wanted)[likely] ** 2 / wanted[likely]).sum()
        assert chi_square < 24.3, "p < 0.001 at 7 degrees of freedom"
