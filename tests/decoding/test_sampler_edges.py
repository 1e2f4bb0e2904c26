"""Faults stay in their row, and no legal extreme gives an illegal answer."""

import numpy as np
import pytest

from octavo.decoding.sampler import NativeSampler
from octavo.errors import InvalidRequestError
from octavo.request.params import SamplingParams
from tests.decoding.sampling_support import KINDS, MakeSampler, random_logits

VOCAB = 130


def seeded(**fields: object) -> SamplingParams:
    return SamplingParams(**{"seed": 1, "max_tokens": None, **fields})


def next_tokens(
    sampler: NativeSampler, logits: np.ndarray, steps: int, params: SamplingParams, eos: list[int]
) -> list[int]:
    sampler.add(0, params, eos, [], [])
    tokens = [int(sampler.sample(logits[None], np.zeros(1, np.int32)).token_ids[0]) for _ in range(steps)]
    sampler.remove(0)
    return tokens


def logits_with(values: dict[int, float], rest: float = 0.0, vocab: int = VOCAB) -> np.ndarray:
    logits = np.full(vocab, rest, np.float32)
    logits[list(values)] = list(values.values())
    return logits


@pytest.mark.parametrize("place", [0, 63, 64, 128, 129])
@pytest.mark.parametrize("greedy", [True, False])
def test_a_nan_fails_its_row_only(make_sampler: MakeSampler, place: int, greedy: bool) -> None:
    params = seeded(temperature=0.0 if greedy else 1.0, logprobs=2)
    clean, faulty = make_sampler(VOCAB, 129), make_sampler(VOCAB, 129)
    logits = random_logits(np.random.default_rng(1), 3, VOCAB, "normal")
    for sampler in (clean, faulty):
        for slot in range(3):
            sampler.add(slot, params, [], [], [])
    slots = np.arange(3, dtype=np.int32)
    want = clean.sample(logits, slots)
    logits[1, place] = np.nan
    rows = faulty.sample(logits, slots)
    assert rows.token_ids[1] == -1
    assert list(rows.errors) == [1]
    assert "NaN" in rows.errors[1]
    assert rows.logprobs[1] is None
    for row in (0, 2):
        assert (rows.token_ids[row], rows.logprobs[row]) == (want.token_ids[row], want.logprobs[row])


def test_a_failed_row_is_not_counted_as_output(make_sampler: MakeSampler) -> None:
    sampler = make_sampler(VOCAB)
    sampler.add(0, seeded(), [], [], [])
    sampler.add(1, seeded(), [], [], [])
    logits = random_logits(np.random.default_rng(1), 1, VOCAB, "normal")
    assert sampler.sample(logits * np.nan, np.array([1], np.int32)).token_ids[0] == -1
    tokens = [
        [int(sampler.sample(logits, np.array([slot], np.int32)).token_ids[0]) for _ in range(5)] for slot in (0, 1)
    ]
    assert tokens[0] == tokens[1]


def test_all_minus_infinity_is_the_models_fault(make_sampler: MakeSampler) -> None:
    sampler = make_sampler(VOCAB, 128)
    sampler.add(0, seeded(), [], [], [])
    logits = logits_with({129: 1.0}, rest=-np.inf)  # padding does not help
    rows = sampler.sample(logits[None], np.zeros(1, np.int32))
    assert rows.token_ids[0] == -1
    assert "-inf" in rows.errors[0]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"allowed_token_ids": (3, 4), "bad_words_token_ids": ((3,), (4,))}, ["allowed_token_ids", "bad_words"]),
        ({"allowed_token_ids": (2,), "min_tokens": 1}, ["allowed_token_ids", "min_tokens"]),
        ({"allowed_token_ids": (9,)}, ["allowed_token_ids"]),
    ],
)
def test_a_request_that_masks_everything_is_told_by_what(
    make_sampler: MakeSampler, fields: dict[str, object], named: list[str]
) -> None:
    sampler = make_sampler(VOCAB)
    sampler.add(0, seeded(**fields), [2], [], [])
    rows = sampler.sample(logits_with({9: -np.inf})[None], np.zeros(1, np.int32))
    assert rows.token_ids[0] == -1
    assert all(field in rows.errors[0] for field in named)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_infinite_logits_win_and_share_evenly(make_sampler: MakeSampler, temperature: float) -> None:
    logits = logits_with({5: np.inf, 100: np.inf, 7: 3e38, 8: -np.inf})
    tokens = next_tokens(make_sampler(VOCAB), logits, 200, seeded(temperature=temperature), [])
    assert set(tokens) == ({5} if temperature == 0 else {5, 100})
    assert temperature == 0 or 70 < tokens.count(5) < 130


def test_greedy_ties_go_to_the_lower_id(make_sampler: MakeSampler) -> None:
    for ids in ([70, 3, 129], [129, 128], [0, 129], [64, 65]):
        logits = logits_with(dict.fromkeys(ids, 2.0))
        assert next_tokens(make_sampler(VOCAB), logits, 1, seeded(temperature=0.0), []) == [min(ids)]


@pytest.mark.parametrize("field", [{"top_k": 3}, {"top_p": 0.1}])
def test_border_ties_go_to_the_lower_ids(make_sampler: MakeSampler, field: dict[str, object]) -> None:
    sampler = make_sampler(VOCAB)
    sampler.add(0, seeded(**field), [], [], [])
    expected = 3 if "top_k" in field else 13
    assert sampler.candidates(np.zeros(VOCAB, np.float32), 0) == list(range(expected))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fields", [{"top_p": 1e-9}, {"top_k": 1}, {"temperature": 1e-5}, {"top_p": 1e-300}], ids=str)
def test_the_tightest_settings_are_greedy(make_sampler: MakeSampler, kind: str, fields: dict[str, object]) -> None:
    sampler = make_sampler(VOCAB)
    for logits in random_logits(np.random.default_rng(9), 5, VOCAB, kind):
        best = int(np.argmax(logits))
        tokens = next_tokens(sampler, logits, 5, seeded(**fields), [])
        if "temperature" in fields:  # equal or nearly equal logits stay a draw at any temperature
            assert all(logits[best] - logits[token] < 5e-4 for token in tokens)
        else:
            assert tokens == [best] * 5


def test_min_p_one_keeps_the_ties_of_the_best(make_sampler: MakeSampler) -> None:
    tokens = next_tokens(make_sampler(VOCAB), logits_with({4: 3.0, 77: 3.0, 5: 2.99}), 100, seeded(min_p=1.0), [])
    assert set(tokens) == {4, 77}


def test_a_huge_temperature_is_nearly_uniform_and_finite(make_sampler: MakeSampler) -> None:
    logits = random_logits(np.random.default_rng(3), 1, VOCAB, "normal")[0]
    tokens = next_tokens(make_sampler(VOCAB), logits, 3000, seeded(temperature=100.0), [])
    assert len(set(tokens)) == VOCAB
    assert max(tokens.count(token) for token in set(tokens)) < 3 * 3000 / VOCAB


def test_padding_is_never_sampled(make_sampler: MakeSampler) -> None:
    logits = logits_with(dict.fromkeys(range(101, VOCAB), 50.0))
    for fields in ({}, {"temperature": 0.0}, {"temperature": 100.0}, {"top_p": 0.5}, {"frequency_penalty": -2.0}):
        tokens = next_tokens(make_sampler(VOCAB, 101), logits, 50, seeded(**fields), [])
        assert all(0 <= token < 101 for token in tokens)


def test_bias_of_a_hundred_forces_and_forbids(make_sampler: MakeSampler) -> None:
    logits = random_logits(np.random.default_rng(3), 1, VOCAB, "normal")[0]
    sampler = make_sampler(VOCAB)
    assert set(next_tokens(sampler, logits, 50, seeded(logit_bias={99: 100.0}), [])) == {99}
    best = int(np.argmax(logits))
    assert best not in next_tokens(sampler, logits, 200, seeded(logit_bias={best: -100.0}), [])


def test_one_allowed_id_is_always_taken(make_sampler: MakeSampler) -> None:
    logits = logits_with({3: -80.0}, rest=80.0)
    assert set(next_tokens(make_sampler(VOCAB), logits, 20, seeded(allowed_token_ids=(3,)), [])) == {3}


def test_penalties_see_what_they_should(make_sampler: MakeSampler) -> None:
    """Repetition sees prompt and output; presence and frequency see the output only, frequency each occurrence."""
    logits = logits_with({1: 4.0, 2: -4.0, 3: 4.0, 4: 4.0})
    prompt, outputs = [1, 1, 1, 2], [3, 3, 2]
    cases = [
        ({"repetition_penalty": 2.0}, {1: 2.0, 2: -8.0, 3: 2.0, 4: 4.0}),
        ({"presence_penalty": 1.5}, {1: 4.0, 2: -5.5, 3: 2.5, 4: 4.0}),
        ({"frequency_penalty": 0.5}, {1: 4.0, 2: -4.5, 3: 3.0, 4: 4.0}),
        (
            {"repetition_penalty": 2.0, "frequency_penalty": 0.5, "presence_penalty": 1.5},
            {1: 2.0, 2: -10.0, 3: -0.5, 4: 4.0},
        ),
    ]
    for fields, want in cases:
        sampler = make_sampler(VOCAB)
        sampler.add(0, seeded(**fields), [], prompt, outputs)
        assert sampler.adjusted_logits(logits, 0).tolist() == logits_with(want).tolist()


def test_min_tokens_masks_every_stop_id_until_then(make_sampler: MakeSampler) -> None:
    logits = logits_with({2: 50.0, 7: 49.0, 11: 48.0, 30: 1.0}, rest=-50.0)
    params = seeded(temperature=0.0, min_tokens=3, stop_token_ids=(11,))
    assert next_tokens(make_sampler(VOCAB), logits, 5, params, [2, 7]) == [30, 30, 30, 2, 2]


def test_bad_words_ban_only_the_end_of_what_was_generated(make_sampler: MakeSampler) -> None:
    sampler = make_sampler(VOCAB)
    logits = logits_with({5: 3.0, 6: 2.0})
    params = seeded(temperature=0.0, bad_words_token_ids=((5, 5), (9,)))
    sampler.add(0, params, [], [5], [])  # a 5 in the prompt is not part of a generated word
    tokens = [int(sampler.sample(logits[None], np.zeros(1, np.int32)).token_ids[0]) for _ in range(5)]
    assert tokens == [5, 6, 5, 6, 5]


def test_neighbouring_rows_of_a_larger_array_are_read_in_place(make_sampler: MakeSampler) -> None:
    store = np.random.default_rng(0).standard_normal((6, VOCAB + 10)).astype(np.float32)
    sampler, twin = make_sampler(VOCAB), make_sampler(VOCAB)
    for slot in range(3):
        sampler.add(slot, seeded(seed=slot), [], [], [])
        twin.add(slot, seeded(seed=slot), [], [], [])
    view = store[::2, 3 : 3 + VOCAB]
    slots = np.arange(3, dtype=np.int32)
    assert sampler.sample(view, slots).token_ids.tolist() == twin.sample(view.copy(), slots).token_ids.tolist()


def test_no_rows_no_tokens(make_sampler: MakeSampler) -> None:
    rows = make_sampler(VOCAB).sample(np.zeros((0, VOCAB), np.float32), np.zeros(0, np.int32))
    assert (rows.token_ids.tolist(), rows.logprobs, rows.errors) == ([], [], {})
    assert make_sampler(VOCAB).score(np.zeros((0, VOCAB), np.float32), np.zeros(0, np.int32), 3) == []


@pytest.mark.parametrize("vocab", [1, 2, 63, 64, 65, 4096, 4097])
def test_every_size_of_vocabulary(make_sampler: MakeSampler, vocab: int) -> None:
    logits = random_logits(np.random.default_rng(vocab), 1, vocab, "normal")[0]
    sampler = make_sampler(vocab)
    assert next_tokens(sampler, logits, 1, seeded(temperature=0.0), []) == [int(np.argmax(logits))]
    assert all(0 <= t < vocab for t in next_tokens(sampler, logits, 20, seeded(top_p=0.9, top_k=5), []))


def test_mistakes_of_the_caller_are_named(make_sampler: MakeSampler) -> None:
    sampler = make_sampler(VOCAB)
    one_row, two_rows = np.zeros((1, VOCAB), np.float32), np.zeros((2, VOCAB), np.float32)
    sampler.add(0, seeded(), [], [], [])
    for call, message in [
        (lambda: sampler.add(0, seeded(), [], [], []), "slot=0 is taken"),
        (lambda: sampler.remove(1), "slot=1 holds no request"),
        (lambda: sampler.sample(one_row, np.array([1], np.int32)), "slot=1 holds no request"),
        (lambda: sampler.sample(two_rows, np.zeros(2, np.int32)), "slot=0 has two rows"),
        (lambda: sampler.sample(two_rows, np.zeros(1, np.int32)), "2 rows for 1 ids"),
        (lambda: sampler.sample(np.zeros((1, 7), np.float32), np.zeros(1, np.int32)), "7 columns"),
        (lambda: sampler.score(one_row, np.array([VOCAB], np.int32), 1), f"target token id={VOCAB}"),
        (lambda: sampler.score(one_row, np.zeros(1, np.int32), -1), "num_logprobs=-1"),
        (lambda: make_sampler(VOCAB, VOCAB + 1), "valid_vocab_size"),
        (lambda: make_sampler(2**20), "vocab_size"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"logit_bias": {VOCAB: 1.0}}, "logit_bias"),
        ({"allowed_token_ids": (-1,)}, "allowed_token_ids"),
        ({"bad_words_token_ids": ((1, 10**6),)}, "bad_words"),
        ({"stop_token_ids": (VOCAB,)}, "stop_token_ids"),
        ({"seed": None}, "seed"),
    ],
)
def test_requests_that_cannot_be_honoured_are_refused(
    make_sampler: MakeSampler, fields: dict[str, object], field: str
) -> None:
    sampler = make_sampler(VOCAB + 10, VOCAB)
    with pytest.raises(InvalidRequestError, match=field) as caught:
        sampler.add(0, seeded(**fields), [], [], [])
    assert caught.value.field == field
    sampler.add(0, seeded(), [], [], [])  # the slot is still free
