"""A fault at any stage ends the request that it befalls; the others have the tokens and logprobs they have alone."""

import pytest

from tests.equality.conftest import TinyBaseline
from tests.equality.faults import FAULTS, MARK, BesideVictims
from tests.equality.settings import Fields

MODEL = "int8 activations"
WAYS: dict[str, tuple[Fields, bool]] = {
    "all at once": ({}, False),
    "streams, chunks of 24": ({"max_num_batched_tokens": 24, "max_num_seqs": 24}, True),
    "planned ahead": ({"async_scheduling": True, "block_size": 4}, False),
    "planned ahead, streams, chunks of 40": ({"async_scheduling": True, "max_num_batched_tokens": 40}, True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stage", FAULTS)
def test_a_fault_ends_its_request_alone(tiny_baseline: TinyBaseline, stage: str, way: str) -> None:
    fields, streamed = WAYS[way]
    baseline = tiny_baseline(MODEL)
    answered = [choice.token_ids for answer in baseline.answers.values() for choice in answer.choices]
    assert not any(MARK in ids for ids in answered), "another token must mark the victims"
    baseline.check(BesideVictims(FAULTS[stage], fields, streamed))
