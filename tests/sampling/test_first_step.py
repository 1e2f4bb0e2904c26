"""What each parameter does to the first token's distribution: against the oracle by candidates and by chi-square; and
where the value says "nothing", bit for bit."""

import math
from typing import Any

import numpy as np
import pytest

from octavo._native import ThreadPool, available_isas
from octavo.decoding.sampler import NativeSampler
from octavo.decoding.seeds import derive_seed
from octavo.request.params import SamplingParams
from tests.sampling import oracle

VOCAB, PADDED, EOS = 200, 256, (2,)
ISAS = available_isas()
LOGITS = (np.random.default_rng(4).standard_normal(PADDED) * 2.5).astype(np.float32)
PROMPT = [5, 5, *(int(i) for i in np.argsort(-LOGITS[:VOCAB])[:4])]
EFFECTS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.6},
    "top_k": {"top_k": 12},
    "top_p": {"top_p": 0.7},
    "min_p": {"min_p": 0.1},
    "repetition_penalty": {"repetition_penalty": 2.5},
    "logit_bias": {"logit_bias": {3: 6.0, 4: -100.0}},
    "allowed_token_ids": {"allowed_token_ids": (3, 4, 5, 60, 130, 199)},
    "bad_words": {"bad_words_token_ids": ((int(np.argmax(LOGITS[:VOCAB])),), (7, 8))},
    "min_tokens": {"min_tokens": 1, "stop_token_ids": tuple(int(i) for i in np.argsort(-LOGITS[:VOCAB])[:3])},
    "all": {"temperature": 1.3, "top_k": 50, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.3},
}
NEUTRAL: dict[str, Any] = {
    "top_k": [0, -1, VOCAB, 10**9],
    "top_p": [1.0],
    "min_p": [0.0],
    "repetition_penalty": [1.0],
    "presence_penalty": [0.0],
    "frequency_penalty": [0.0],
    "logit_bias": [None, {}, {5: 0.0}],
    "allowed_token_ids": [None, tuple(range(VOCAB))],
    "bad_words_token_ids": [(), ((7, 8),)],
    "min_tokens": [0],
    "stop_token_ids": [(), (7,)],
    "logits_processors": [None, {}],
    "logprob_token_ids": [()],
}


def sampler(isa: str = "auto") -> NativeSampler:
    return NativeSampler(ThreadPool(1), PADDED, VOCAB, isa)


def tokens_of(params: SamplingParams, count: int, outputs: list[int] | None = None, isa: str = "auto") -> np.ndarray:
    """First tokens under so many seeds."""
    native = sampler(isa)
    for slot in range(count):
        native.add(slot, params.replace(seed=derive_seed(11, slot)), EOS, PROMPT, outputs or [])
    rows = np.tile(LOGITS, (count, 1))
    return native.sample(rows, np.arange(count, dtype=np.int32)).token_ids


def distribution(params: SamplingParams, outputs: list[int] | None = None) -> np.ndarray:
    return np.asarray(oracle.probabilities(oracle.adjusted(LOGITS[:VOCAB], params, EOS, PROMPT, outputs or []), params))


def check_chi_square(tokens: np.ndarray, chances: np.ndarray) -> None:
    """Draws follow the distribution but for a millionth of chances (Wilson-Hilferty); rare tokens are one class."""
    expected, counts = chances * len(tokens), np.bincount(tokens, minlength=len(chances)).astype(float)
    assert counts[chances == 0].sum() == 0
    common = expected >= 8
    parts = [
        (counts[common], expected[common]),
        (counts[~common].sum(keepdims=True), expected[~common].sum(keepdims=True)),
    ]
    value = sum(float(((c - e) ** 2 / e).sum()) for c, e in parts if e.sum() > 1)
    degrees = max(1, int(common.sum()))
    assert value < degrees * (1 - 2 / (9 * degrees) + 4.75 * math.sqrt(2 / (9 * degrees))) ** 3


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", EFFECTS)
def test_the_oracles_candidates(name: str, isa: str) -> None:
    """Exactly those tokens can come, and of other logits than without the parameter."""
    params = SamplingParams(**{"seed": 1, "max_tokens": None, **EFFECTS[name]})
    native = sampler(isa)
    native.add(0, params, EOS, PROMPT, [])
    native.add(1, SamplingParams(seed=1), EOS, PROMPT, [])
    assert native.candidates(LOGITS, 0) == np.flatnonzero(distribution(params)).tolist()
    assert np.array_equal(native.adjusted_logits(LOGITS, 0), oracle.adjusted(LOGITS[:VOCAB], params, EOS, PROMPT, []))
    assert not np.allclose(distribution(params), distribution(SamplingParams(seed=1)), atol=1e-3)


@pytest.mark.parametrize("name", ["nothing", *EFFECTS])
def test_draws_follow_the_oracles_distribution(name: str) -> None:
    params = SamplingParams(**{"seed": 1, "max_tokens": None, **EFFECTS.get(name, {})})
    tokens = tokens_of(params, 6000)
    check_chi_square(tokens, distribution(params))
    if name != "nothing":
        with pytest.raises(AssertionError):
            check_chi_square(tokens, distribution(SamplingParams(seed=1)))


@pytest.mark.parametrize("fields", [{"presence_penalty": 1.5}, {"frequency_penalty": 0.8}])
def test_penalties_of_the_output_follow_it(fields: dict[str, Any]) -> None:
    """They see nothing at the first token, and the output's tokens, not the prompt's, at later ones."""
    best = [int(i) for i in np.argsort(-LOGITS[:VOCAB])[:3]]
    params, outputs = SamplingParams(seed=1, max_tokens=None, **fields), [best[0], best[0], best[1]]
    check_chi_square(tokens_of(params, 4000), distribution(SamplingParams(seed=1)))
    tokens = tokens_of(params, 4000, outputs)
    check_chi_square(tokens, distribution(params, outputs))
    with pytest.raises(AssertionError):
        check_chi_square(tokens, distribution(SamplingParams(seed=1)))


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in NEUTRAL.items() for value in values])
def test_neutral_values_change_no_bit(name: str, value: Any) -> None:
    plain = SamplingParams(seed=1, max_tokens=None, logprobs=3, temperature=0.9)
    neutral = plain.replace(**{name: value})
    native = sampler()
    for slot, params in enumerate((plain, neutral)):
        native.add(slot, params, EOS, PROMPT, [9])
    rows = np.tile(LOGITS, (2, 1))
    for _ in range(20):
        sampled = native.sample(rows, np.arange(2, dtype=np.int32))
        assert sampled.token_ids[0] == sampled.token_ids[1] and sampled.logprobs[0] == sampled.logprobs[1]


def test_log_probabilities_of_a_whole_row_sum_to_one() -> None:
    """Padding of the head included, as the model defines the row."""
    (row,) = sampler().score(LOGITS[None], np.zeros(1, np.int32), VOCAB)
    listed = dict(zip(row.token_ids, row.logprobs, strict=True))
    assert len(listed) == VOCAB
    padding = np.exp(oracle.logprobs(LOGITS)[VOCAB:]).sum()
    assert math.fsum(math.exp(v) for v in listed.values()) + padding == pytest.approx(1, abs=1e-5)
    assert list(row.logprobs[1:]) == sorted(row.logprobs[1:], reverse=True)


def test_n_answers_are_n_requests_with_the_seeds_that_are_documented() -> None:
    params = SamplingParams(seed=11, max_tokens=None)
    seeds = [derive_seed(11, i) for i in range(64)]
    assert seeds[0] == 11 and len(set(seeds)) == 64
    alone = [oracle.draw(LOGITS[:VOCAB], params.replace(seed=seed), 0)[0] for seed in seeds]
    assert tokens_of(params, 64).tolist() == alone and len(set(alone)) > 10


def test_extreme_temperatures() -> None:
    """Near zero the best token; very high near uniform over all that is left, without a NaN."""
    assert set(tokens_of(SamplingParams(seed=1, temperature=1e-5, max_tokens=None), 50)) == {
        int(np.argmax(LOGITS[:VOCAB]))
    }
    hot = tokens_of(SamplingParams(seed=1, temperature=100.0, max_tokens=None), 6000)
    assert len(set(hot.tolist())) == VOCAB and hot.max() < VOCAB
    check_chi_square(hot, distribution(SamplingParams(seed=1, temperature=100.0)))
    few = tokens_of(SamplingParams(seed=1, temperature=100.0, top_k=5, max_tokens=None), 2000)
    assert set(few.tolist()) == set(np.argsort(-LOGITS[:VOCAB])[:5].tolist())


def test_padding_is_never_drawn_however_likely() -> None:
    native = sampler()
    native.add(0, SamplingParams(seed=1, temperature=100.0, max_tokens=None), EOS, PROMPT, [])
    logits = np.full(PADDED, -5, np.float32)
    logits[VOCAB:] = 50
    drawn = [int(native.sample(logits[None], np.zeros(1, np.int32)).token_ids[0]) for _ in range(500)]
    assert max(drawn) < VOCAB


@pytest.mark.parametrize("isa", ISAS)
def test_logprobs_of_named_ids(isa: str) -> None:
    """The token, then those named in their order, also such as cannot come; ranks and values are the model's."""
    named = (199, 3, int(np.argmax(LOGITS[:VOCAB])), 7)
    logits = LOGITS.copy()
    logits[3] = -np.inf
    params = SamplingParams(temperature=0, logprobs=0, logprob_token_ids=named, allowed_token_ids=(7,), max_tokens=None)
    native = sampler(isa)
    native.add(0, params, EOS, PROMPT, [])
    native.add(1, SamplingParams(temperature=0, logprobs=2, max_tokens=None), EOS, PROMPT, [])
    sampled = native.sample(np.stack([logits, logits]), np.arange(2, dtype=np.int32))
    row, other = sampled.logprobs
    assert row is not None and other is not None and row.token_ids == [7, *named]
    with np.errstate(divide="ignore"):
        assert np.allclose(row.logprobs, oracle.logprobs(logits)[row.token_ids], atol=1e-4)
    assert row.logprobs[2] == -np.inf and row.rank == 1 + int((logits[:VOCAB] > logits[7]).sum())
    assert len(other.token_ids) == 3


def test_a_forced_token_comes_whatever_the_parameters_say() -> None:
    from octavo.request.reasoning import ReasoningSpec

    spec = ReasoningSpec(ends=((50,),), forced_end=(50, 2), budget=1, is_open=True)
    params = SamplingParams(
        seed=1,
        max_tokens=None,
        reasoning=spec,
        allowed_token_ids=(9,),
        bad_words_token_ids=((50,),),
        min_tokens=9,
        logit_bias={50: -100.0},
        logprobs=1,
    )
    native = sampler()
    native.add(0, params, EOS, PROMPT, [])
    rows = [native.sample(LOGITS[None], np.zeros(1, np.int32)) for _ in range(4)]
    assert [int(row.token_ids[0]) for row in rows] == [9, 50, 2, 9]
    forced = rows[1].logprobs[0]
    assert forced is not None and forced.token_ids[0] == 50
    assert forced.logprobs[0] == pytest.approx(oracle.logprobs(LOGITS)[50], abs=1e-4)
