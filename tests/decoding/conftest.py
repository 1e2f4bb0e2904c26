"""Fixtures of the sampler's tests."""

import pytest

from octavo._native import ThreadPool
from octavo.decoding.sampler import NativeSampler
from tests.decoding.sampling_support import ISAS, MakeSampler


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make_sampler(isa: str) -> MakeSampler:
    """`make_sampler(vocab_size, valid_vocab_size=None, threads=1)` on the path under test."""

    def make(vocab_size: int, valid_vocab_size: int | None = None, threads: int = 1) -> NativeSampler:
        return NativeSampler(ThreadPool(threads), vocab_size, valid_vocab_size or vocab_size, isa)

    return make
