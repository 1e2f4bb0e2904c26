"""The native sampler against its NumPy twin: every parameter alone and mixed, on friendly and hostile logits."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo._native import ThreadPool
from octavo.decoding.reference import ReferenceRequest
from octavo.decoding.sampler import NativeSampler
from octavo.request.params import SamplingParams
from tests.decoding.sampling_support import ISAS, KINDS, Float32, random_logits
from tests.effort import times

VOCAB = 300
EOS = (2, 7)
SAMPLERS = {isa: NativeSampler(ThreadPool(1), VOCAB, VOCAB, isa) for isa in ISAS}
SINGLE = [
    {"temperature": 0.0},
    {"temperature": 1e-5},
    {"temperature": 100.0},
    {"top_k": 1},
    {"top_k": 40},
    {"top_k": 10**9},
    {"top_p": 1e-9},
    {"top_p": 0.5},
    {"top_p": 0.999999},
    {"min_p": 1.0},
    {"min_p": 0.05},
    {"repetition_penalty": 1.7},
    {"repetition_penalty": 0.4},
    {"presence_penalty": 2.0},
    {"frequency_penalty": -1.1},
    {"logit_bias": {5: 100.0, 299: -100.0, 64: 0.5}},
    {"allowed_token_ids": (4,)},
    {"allowed_token_ids": tuple(range(0, 300, 3))},
    {"bad_words_token_ids": ((9,), (5, 6), (6, 5), (5, 6, 5), (1, 2, 3, 4, 5, 6, 7))},
    {"min_tokens": 9, "stop_token_ids": (11, 12)},
    {"top_k": 50, "top_p": 0.9, "min_p": 0.01, "temperature": 0.7},
    {"temperature": 0.0, "repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": 0.5},
]
PROMPT = [5, 5, 9, 100, 250, 250, 100_000]


def check_draw(isa: str, params: SamplingParams, outputs: list[int], logits: Float32) -> None:
    """Edited logits: equal bits. Candidates: equal, or the target mass was missed by a rounding. Token: equal."""
    native, request = SAMPLERS[isa], ReferenceRequest(params, EOS, PROMPT, outputs)
    native.add(0, params, EOS, PROMPT, outputs)
    try:
        adjusted = request.adjust(logits)
        assert np.array_equal(native.adjusted_logits(logits, 0), adjusted)
        if adjusted.max() == -np.inf:
            assert native.sample(logits[None], np.zeros(1, np.int32)).token_ids[0] == -1
            return
        want = request.draw(logits)
        candidates = np.array(native.candidates(logits, 0))
        token = native.sample(logits[None], np.zeros(1, np.int32)).token_ids[0]
    finally:
        native.remove(0)
    assert token in candidates
    if want.mass_gap > 1e-6:
        assert np.array_equal(candidates, np.flatnonzero(want.kept))
        assert token == want.token or want.key_gap < 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fields", SINGLE, ids="+".join)
def test_each_parameter_does_what_the_reference_says(isa: str, fields: dict[str, object], kind: str) -> None:
    params = SamplingParams(**{"seed": 11, "max_tokens": None, **fields})
    rows = random_logits(np.random.default_rng(5), 3, VOCAB, kind)
    for row in rows:
        for outputs in ([], [5], [5, 6], [1, 2, 3, 4, 5, 6], [299] * 9):
            check_draw(isa, params, outputs, row)


token_ids = st.integers(0, VOCAB - 1)
mixed_params = st.builds(
    SamplingParams,
    seed=st.integers(0, 2**63 - 1),
    max_tokens=st.none(),
    temperature=st.sampled_from([0.0, 1e-5, 0.3, 1.0, 2.5, 100.0]),
    top_k=st.sampled_from([-1, 0, 1, 2, 17, 64, 299, 300, 5000]),
    top_p=st.sampled_from([1e-9, 0.1, 0.5, 0.9, 0.99, 1.0]) | st.floats(0.01, 1.0),
    min_p=st.sampled_from([0.0, 1e-6, 0.1, 0.5, 1.0]),
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.2, 50.0]),
    presence_penalty=st.sampled_from([0.0, -2.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, -2.0, 0.3]),
    min_tokens=st.integers(0, 4),
    logit_bias=st.none() | st.dictionaries(token_ids, st.floats(-100, 100), max_size=5),
    allowed_token_ids=st.none() | st.lists(token_ids, min_size=1, max_size=80).map(tuple),
    bad_words_token_ids=st.lists(st.lists(token_ids, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple),
    stop_token_ids=st.lists(token_ids, max_size=3).map(tuple),
)


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=times(100), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    params=mixed_params,
    outputs=st.lists(token_ids, max_size=6),
    kind=st.sampled_from(KINDS),
    logits_seed=st.integers(0, 50),
)
def test_mixed_parameters_do_what_the_reference_says(
    isa: str, params: SamplingParams, outputs: list[int], kind: str, logits_seed: int
) -> None:
    logits = random_logits(np.random.default_rng(logits_seed), 1, VOCAB, kind)[0]
    check_draw(isa, params, outputs, logits)


@pytest.mark.parametrize("vocab", [49152, 151936, 262144])
def test_real_vocabularies(isa: str, vocab: int) -> None:
    native = NativeSampler(ThreadPool(1), vocab, vocab - 37, isa)
    for kind in ("normal", "ties", "flat", "equal"):
        logits = random_logits(np.random.default_rng(3), 1, vocab, kind)[0]
        for fields in ({}, {"top_p": 0.9}, {"top_k": 20000}, {"top_k": 50, "top_p": 0.8, "min_p": 0.01}):
            params = SamplingParams(seed=3, logprobs=3, **fields)
            native.add(0, params, EOS, [], [])
            want = ReferenceRequest(params, EOS, []).draw(logits[: vocab - 37])
            if want.mass_gap > 1e-7:
                assert np.array_equal(np.array(native.candidates(logits, 0)), np.flatnonzero(want.kept))
                assert native.sample(logits[None], np.zeros(1, np.int32)).token_ids[0] == want.token
            native.remove(0)
