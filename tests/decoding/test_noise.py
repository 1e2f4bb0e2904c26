"""The noise: the published Philox answers, one definition on all paths, and its statistics through real draws."""

import math

import numpy as np
import pytest

from octavo._native import exponential_noise, philox4x32
from octavo.decoding import reference
from octavo.decoding.seeds import derive_seed
from octavo.request.params import MAX_SEED, SamplingParams
from tests.decoding.sampling_support import ISAS, MakeSampler

# From Random123's published known answers for philox4x32 with 10 rounds: counter, key, words.
KNOWN_ANSWERS = [
    ([0] * 4, (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, (0xFFFFFFFF, 0xFFFFFFFF), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        (0xA4093822, 0x299F31D0),
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter: list[int], key: tuple[int, int], words: list[int]) -> None:
    assert philox4x32(counter, key[0] | key[1] << 32) == words
    counters = np.array(counter, dtype=np.uint64).reshape(4, 1)
    assert reference.philox4x32(counters, key[0] | key[1] << 32)[:, 0].tolist() == words


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("seed", "position"), [(0, 0), (1, 0), (MAX_SEED, 2**31 - 2), (2**32 + 5, 77)])
def test_every_path_has_the_same_noise(isa: str, seed: int, position: int) -> None:
    native, twin = exponential_noise(seed, position, 5000, isa), reference.exponential_noise(seed, position, 5000)
    np.testing.assert_allclose(native, twin, rtol=1e-14)
    assert np.array_equal(native, exponential_noise(seed, position, 5000, "portable"))


def draws(make_sampler: MakeSampler, probabilities: list[float], seeds: range, positions: int) -> np.ndarray:
    """Tokens [seed, position] of rows whose temperature-1 distribution is `probabilities`."""
    logits = np.log(np.array([probabilities] * len(seeds), dtype=np.float64)).astype(np.float32)
    sampler = make_sampler(len(probabilities))
    for slot, seed in enumerate(seeds):
        sampler.add(slot, SamplingParams(seed=seed, max_tokens=None), [], [], [])
    slots = np.arange(len(seeds), dtype=np.int32)
    return np.stack([sampler.sample(logits, slots).token_ids for _ in range(positions)], axis=1)


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def bound(degrees: int) -> float:
    """Chi-square stays below this with all but about 1e-6 of chances (Wilson-Hilferty)."""
    return degrees * (1 - 2 / (9 * degrees) + 4.75 * math.sqrt(2 / (9 * degrees))) ** 3


PROBABILITIES = [0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.02]


def test_draws_follow_the_distribution_over_positions_and_seeds(make_sampler: MakeSampler) -> None:
    tokens = draws(make_sampler, PROBABILITIES, range(400), 400)
    for some in (tokens.ravel(), tokens[0], tokens[:, 0]):  # all; one request's positions; one position of all seeds
        counts = np.bincount(some, minlength=len(PROBABILITIES))
        assert chi_square(counts, np.array(PROBABILITIES) * some.size) < bound(len(PROBABILITIES) - 1)


@pytest.mark.parametrize("pairs", ["positions", "seeds", "children"])
def test_neighbouring_draws_are_independent(make_sampler: MakeSampler, pairs: str) -> None:
    tokens = draws(make_sampler, PROBABILITIES, range(200), 200)
    if pairs == "positions":
        first, second = tokens[:, :-1].ravel(), tokens[:, 1:].ravel()
    elif pairs == "seeds":
        first, second = tokens[:-1].ravel(), tokens[1:].ravel()
    else:
        children = [derive_seed(7, i) for i in range(200)]
        tokens = np.concatenate([draws(make_sampler, PROBABILITIES, range(s, s + 1), 200) for s in children])
        first, second = tokens[:-1].ravel(), tokens[1:].ravel()
    kept = 5  # the five frequent tokens and "any other": 6 x 6 cells
    first, second = np.minimum(first, kept), np.minimum(second, kept)
    table = np.bincount(first * (kept + 1) + second, minlength=(kept + 1) ** 2)
    p = np.array([*PROBABILITIES[:kept], sum(PROBABILITIES[kept:])])
    assert chi_square(table, np.outer(p, p).ravel() * first.size) < bound((kept + 1) ** 2 - 1)


def test_a_large_flat_vocabulary_is_drawn_evenly(make_sampler: MakeSampler) -> None:
    vocab, rows, steps = 4096, 64, 64
    sampler = make_sampler(vocab)
    for slot in range(rows):
        sampler.add(slot, SamplingParams(seed=slot + 1000, temperature=100.0, max_tokens=None), [], [], [])
    logits = np.random.default_rng(0).standard_normal((rows, vocab)).astype(np.float32) * 1e-6
    slots = np.arange(rows, dtype=np.int32)
    tokens = np.stack([sampler.sample(logits, slots).token_ids for _ in range(steps)])
    for bins in (tokens // 64, tokens % 64):
        assert chi_square(np.bincount(bins.ravel(), minlength=64), np.full(64, tokens.size / 64)) < bound(63)


def test_the_noise_of_all_tokens_is_independent_and_exponential() -> None:
    """Noise of a block is made from its minimum; that must not show: not in one token's distribution, not in pairs."""
    noise = np.stack([reference.exponential_noise(seed, 0, 4096).reshape(64, 64) for seed in range(100)])
    uniform = 1 - np.exp(-noise)
    for some in (uniform, uniform[..., 0], uniform[..., 63], 1 - np.exp(-64 * noise.min(axis=2))):
        counts = np.histogram(some, bins=64, range=(0, 1))[0]
        assert chi_square(counts, np.full(64, some.size / 64)) < bound(63)
    for first, second in (
        (uniform[..., :-1], uniform[..., 1:]),
        (uniform[..., :32], uniform[..., 32:]),
        (uniform[:, :-1], uniform[:, 1:]),
    ):
        cells = (first * 8).astype(int).ravel() * 8 + (second * 8).astype(int).ravel()
        assert chi_square(np.bincount(cells, minlength=64), np.full(64, cells.size / 64)) < bound(63)
    firsts = np.bincount(noise.argmin(axis=2).ravel(), minlength=64)
    assert chi_square(firsts, np.full(64, firsts.sum() / 64)) < bound(63)


def test_children_get_their_own_seeds() -> None:
    assert derive_seed(1234, 0) == 1234
    children = {derive_seed(seed, index) for seed in (0, 1, 2, MAX_SEED) for index in range(128)}
    assert len(children) == 4 * 128
    assert all(0 <= child <= MAX_SEED for child in children)
    # Fixed for ever: stored seeds must keep giving the same answers.
    assert [derive_seed(42, i) for i in range(1, 4)] == [5498226133080153140, 1479109631656095595, 1534748852236638570]
