"""The promise: one request, one sequence of tokens and logprob bits, whatever runs beside it and on whatever path."""

import numpy as np
import pytest

from octavo import _native
from octavo._native import ThreadPool
from octavo.decoding.sampler import NativeSampler
from octavo.request.outputs import LogprobRow
from octavo.request.params import SamplingParams
from tests.decoding.sampling_support import ISAS, KINDS, Float32, random_logits

VOCAB, VALID = 1000, 989
STEPS = 12
EOS = (2,)
PROMPT = [4, 4, 17, 800]

REQUESTS = [
    SamplingParams(seed=i, logprobs=i % 4 if i % 5 else None, max_tokens=None, **fields)
    for i, fields in enumerate(
        [
            {"temperature": 0.0},
            {},
            {"top_p": 0.9, "temperature": 0.8},
            {"top_k": 30, "top_p": 0.8},
            {"min_p": 0.05, "repetition_penalty": 1.2},
            {"frequency_penalty": 0.7, "presence_penalty": 0.3, "temperature": 0.0},
            {"allowed_token_ids": tuple(range(100, 130))},
            {"logit_bias": {5: 8.0, 6: 8.0}, "bad_words_token_ids": ((5, 6), (6, 6, 5))},
            {"min_tokens": 6, "stop_token_ids": (5, 6, 7), "logit_bias": {7: 30.0}},
            {"top_k": 500, "repetition_penalty": 0.9, "frequency_penalty": -0.5},
        ]
        * 2
    )
]
Answer = list[tuple[int, LogprobRow | None]]


def logits_of(request: int, step: int) -> Float32:
    """The model of these tests: a row that depends on the request and its position alone."""
    return random_logits(np.random.default_rng((request, step)), 1, VOCAB, KINDS[request % len(KINDS)])[0]


def add(sampler: NativeSampler, slot: int, request: int, outputs: list[int]) -> None:
    sampler.add(slot, REQUESTS[request], EOS, PROMPT, outputs)


def alone(sampler: NativeSampler, request: int) -> Answer:
    add(sampler, 3, request, [])
    answer: Answer = []
    for step in range(STEPS):
        rows = sampler.sample(logits_of(request, step)[None], np.array([3], np.int32))
        answer.append((int(rows.token_ids[0]), rows.logprobs[0] if rows.logprobs else None))
    sampler.remove(3)
    return answer


@pytest.fixture(scope="module")
def expected() -> list[Answer]:
    sampler = NativeSampler(ThreadPool(1), VOCAB, VALID, "portable")
    return [alone(sampler, request) for request in range(len(REQUESTS))]


def crowd(sampler: NativeSampler, rng: np.random.Generator) -> list[Answer]:
    """All requests in random slots; each step runs a random subset in random order, now and then one is preempted."""
    answers: list[Answer] = [[] for _ in REQUESTS]
    slot_of = {request: int(slot) for request, slot in enumerate(rng.permutation(40)[: len(REQUESTS)])}
    for request, slot in slot_of.items():
        add(sampler, slot, request, [])
    while unfinished := [r for r, answer in enumerate(answers) if len(answer) < STEPS]:
        chosen = rng.permutation(unfinished)[: int(rng.integers(1, len(unfinished) + 1))]
        logits = np.stack([logits_of(int(r), len(answers[r])) for r in chosen])
        rows = sampler.sample(logits, np.array([slot_of[int(r)] for r in chosen], np.int32))
        for i, r in enumerate(chosen):
            answers[r].append((int(rows.token_ids[i]), rows.logprobs[i] if rows.logprobs else None))
        victim = int(rng.integers(len(REQUESTS)))
        sampler.remove(slot_of[victim])
        add(sampler, slot_of[victim], victim, [token for token, _ in answers[victim]])
    return answers


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_company_order_threads_path_and_preemption_change_no_bit(
    isa: str, threads: int, expected: list[Answer]
) -> None:
    sampler = NativeSampler(ThreadPool(threads), VOCAB, VALID, isa)
    assert crowd(sampler, np.random.default_rng(threads)) == expected


@pytest.mark.parametrize("vocab", [1, 300, 5000, 33000])
@pytest.mark.parametrize("kind", ["normal", "ties", "flat", "holes", "equal"])
def test_the_mass_of_a_row_is_the_exact_sum_of_its_rounded_weights(vocab: int, kind: str) -> None:
    logits = random_logits(np.random.default_rng(vocab), 1, vocab, kind)[0]
    weights = _native.evaluate("exp", (logits - logits.max()) * (np.float32(1) / np.float32(0.8)), "portable")
    expected = sum(int(units) for units in np.rint(weights.astype(np.float64) * 2.0**44))
    for isa in ISAS:
        for threads in (1, 3):
            assert _native.row_mass(_native.ThreadPool(threads), logits, 0.8, isa) == expected


@pytest.mark.parametrize("vocab", [49152, 151936, 262144])
def test_paths_and_threads_agree_on_real_vocabularies(vocab: int) -> None:
    logits = np.concatenate([random_logits(np.random.default_rng(8), 1, vocab, kind) for kind in KINDS])
    slots = np.arange(len(KINDS), dtype=np.int32)
    answers = []
    for isa in ISAS:
        for threads in (1, 3):
            sampler = NativeSampler(ThreadPool(threads), vocab, vocab, isa)
            for slot in slots:
                fields = [{}, {"top_p": 0.95}, {"top_k": 1000, "top_p": 0.9}][slot % 3]
                sampler.add(int(slot), SamplingParams(seed=int(slot), logprobs=20, **fields), EOS, PROMPT, [])
            rows = sampler.sample(logits, slots)
            scores = sampler.score(logits, slots * 1000, 5)
            answers.append((rows.token_ids.tolist(), rows.logprobs, rows.errors, scores))
    assert all(answer == answers[0] for answer in answers)


def test_neutral_values_change_nothing(isa: str) -> None:
    neutral = SamplingParams(
        seed=5, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0,
        frequency_penalty=0.0, logit_bias={}, bad_words_token_ids=(), stop_token_ids=(), min_tokens=0,
    )  # fmt: skip
    widest = neutral.replace(top_k=10**9, allowed_token_ids=tuple(range(VOCAB)), logit_bias={3: 0.0})
    tokens = []
    for params in (SamplingParams(seed=5), neutral, neutral.replace(top_k=-1), widest):
        sampler = NativeSampler(ThreadPool(1), VOCAB, VOCAB, isa)
        sampler.add(0, params, EOS, PROMPT, [])
        tokens.append(
            [int(sampler.sample(logits_of(0, s)[None], np.zeros(1, np.int32)).token_ids[0]) for s in range(30)]
        )
    assert all(t == tokens[0] for t in tokens)
    assert len(set(tokens[0])) > 1


def test_seeds_and_positions_matter(isa: str) -> None:
    sampler = NativeSampler(ThreadPool(1), VOCAB, VOCAB, isa)
    logits = np.stack([logits_of(0, 0)] * 2)
    for slot, seed in enumerate((1, 2)):
        sampler.add(slot, SamplingParams(seed=seed, max_tokens=None), EOS, PROMPT, [])
    tokens = np.stack([sampler.sample(logits, np.arange(2, dtype=np.int32)).token_ids for _ in range(20)])
    assert (tokens[:, 0] != tokens[:, 1]).any()
    assert (tokens[0] != tokens[1:]).any()


def test_the_logits_are_left_as_they_were(isa: str) -> None:
    sampler = NativeSampler(ThreadPool(2), VOCAB, VALID, isa)
    for slot in range(len(REQUESTS)):
        add(sampler, slot, slot, [])
    logits = np.stack([logits_of(r, 0) for r in range(len(REQUESTS))])
    before = logits.copy()
    logits.flags.writeable = False
    sampler.sample(logits, np.arange(len(REQUESTS), dtype=np.int32))
    sampler.score(logits, np.zeros(len(REQUESTS), np.int32), 3)
    assert np.array_equal(logits, before)
