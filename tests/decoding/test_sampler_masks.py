"""Rows of allowed tokens: against the NumPy twin, with every other parameter, and without a trace on other rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.decoding.reference import ReferenceRequest
from octavo.execution.protocols import TokenMasks
from octavo.request.params import SamplingParams
from tests.decoding.sampling_support import ISAS, KINDS, Float32, MakeSampler, random_logits
from tests.decoding.test_sampler_reference import EOS, PROMPT, SAMPLERS, SINGLE, VOCAB

WORDS = -(-VOCAB // 32)
Int32 = np.typing.NDArray[np.int32]


def mask_of(allowed: np.typing.NDArray[np.bool_]) -> Int32:
    """The words of a row; bits behind the vocabulary are set on purpose."""
    bits = np.ones(32 * -(-len(allowed) // 32), np.uint8)
    bits[: len(allowed)] = allowed
    return np.packbits(bits, bitorder="little").view(np.int32)


def random_mask(rng: np.random.Generator, share: float, vocab: int = VOCAB) -> Int32:
    """Blocks that are all allowed, all forbidden and mixed."""
    allowed = rng.random(vocab) < share
    for block in range(0, vocab, 64):
        kind = rng.integers(3)
        if kind < 2:
            allowed[block : block + 64] = bool(kind)
    allowed[rng.integers(vocab)] = True
    return mask_of(allowed)


@pytest.mark.parametrize("isa", ISAS)
@given(
    params=st.sampled_from(SINGLE),
    kind=st.sampled_from(KINDS),
    share=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    seed=st.integers(0, 10**6),
    outputs=st.lists(st.integers(0, VOCAB - 1), max_size=6),
)
def test_as_the_reference(
    isa: str, params: dict[str, object], kind: str, share: float, seed: int, outputs: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    logits, mask = random_logits(rng, 1, VOCAB, kind), random_mask(rng, share)
    sampling = SamplingParams(**{"temperature": 1.0, "seed": seed, **params}, max_tokens=None)  # type: ignore[arg-type]
    request, native = ReferenceRequest(sampling, EOS, PROMPT, outputs), SAMPLERS[isa]
    native.add(0, sampling, EOS, PROMPT, outputs)
    try:
        adjusted = request.adjust(logits[0], mask)
        assert np.array_equal(native.adjusted_logits(logits[0], 0, mask), adjusted)
        candidates = native.candidates(logits[0], 0, mask)
        sampled = native.sample(logits, np.zeros(1, np.int32), TokenMasks(mask[None], np.zeros(1, np.int32)))
    finally:
        native.remove(0)
    if adjusted.max() == -np.inf:
        assert sampled.token_ids[0] == -1
        assert "the shape asked for" in sampled.errors[0]
        return
    want = request.draw(logits[0], mask)
    token = int(sampled.token_ids[0])
    assert token in candidates
    assert mask[token // 32] >> (token % 32) & 1
    if want.mass_gap > 1e-6 and want.key_gap > 1e-6:
        assert token == want.token


def sample_rows(make: MakeSampler, logits: Float32, masks: TokenMasks | None, threads: int) -> list[object]:
    sampler = make(logits.shape[1], threads=threads)
    for slot in range(len(logits)):
        sampler.add(slot, SamplingParams(seed=slot, temperature=0.8, top_p=0.9, logprobs=3), EOS, [1, 2], [])
    sampled = sampler.sample(logits, np.arange(len(logits), dtype=np.int32), masks)
    return list(zip(sampled.token_ids.tolist(), sampled.logprobs, strict=True))


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_without_a_mask_keep_their_bits(make_sampler: MakeSampler, threads: int) -> None:
    rng = np.random.default_rng(1)
    logits = random_logits(rng, 6, 1000, "normal")
    masks = TokenMasks(
        np.stack([random_mask(rng, 0.1, 1000) for _ in range(2)]), np.array([-1, 1, -1, 0, 1, -1], np.int32)
    )
    plain, mixed = (sample_rows(make_sampler, logits, given, threads) for given in (None, masks))
    alone = sample_rows(make_sampler, logits, masks, 1)
    assert mixed == alone
    for row in (0, 2, 5):
        assert mixed[row] == plain[row]
    none = TokenMasks(masks.words, np.full(6, -1, np.int32))
    assert sample_rows(make_sampler, logits, none, threads) == plain
    everything = TokenMasks(np.full((1, 32), -1, np.int32), np.zeros(6, np.int32))
    assert sample_rows(make_sampler, logits, everything, threads) == plain


def test_logprobs_are_those_without_the_mask(make_sampler: MakeSampler) -> None:
    rng = np.random.default_rng(2)
    logits = random_logits(rng, 1, 500, "normal")
    best = int(logits[0].argmax())
    allowed = np.ones(500, np.bool_)
    allowed[best] = False
    sampler = make_sampler(500)
    sampler.add(0, SamplingParams(temperature=0.0, logprobs=2), EOS, [1], [])
    sampled = sampler.sample(logits, np.zeros(1, np.int32), TokenMasks(mask_of(allowed)[None], np.zeros(1, np.int32)))
    row = sampled.logprobs[0]
    assert row is not None
    token = int(sampled.token_ids[0])
    assert token != best
    assert (row.token_ids[:2], row.rank) == ([token, best], 2)
    x = logits[0].astype(np.float64)
    assert row.logprobs[0] == pytest.approx(x[token] - x.max() - np.log(np.exp(x - x.max()).sum()), abs=1e-5)


def test_a_head_with_padding(make_sampler: MakeSampler) -> None:
    sampler = make_sampler(130, 100)
    logits = np.zeros((1, 130), np.float32)
    logits[0, 100:] = 5
    sampler.add(0, SamplingParams(temperature=0.0), EOS, [1], [])
    masks = TokenMasks(mask_of(np.arange(100) == 99)[None], np.zeros(1, np.int32))
    assert sampler.sample(logits, np.zeros(1, np.int32), masks).token_ids.tolist() == [99]


@pytest.mark.parametrize(
    ("shape", "rows", "message"),
    [
        ((1, WORDS + 1), [0], "a mask of 11 words; this vocabulary takes 10"),
        ((1, WORDS), [1], "mask_rows names mask 1 of 1"),
        ((1, WORDS), [-2], "mask_rows names mask -2 of 1"),
        ((1, WORDS), [0, 0], "mask_rows has 2 entries for 1 rows"),
    ],
)
def test_wrong_masks(make_sampler: MakeSampler, shape: tuple[int, int], rows: list[int], message: str) -> None:
    sampler = make_sampler(VOCAB)
    sampler.add(0, SamplingParams(temperature=0.0), EOS, [1], [])
    masks = TokenMasks(np.full(shape, -1, np.int32), np.array(rows, np.int32))
    with pytest.raises(ValueError, match=message):
        sampler.sample(np.zeros((1, VOCAB), np.float32), np.zeros(1, np.int32), masks)
