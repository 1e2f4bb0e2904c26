"""What the figures on proposers count."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.proposers import PROPOSERS, cost_of
from octavo.decoding.speculation.ngram import NgramProposer

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, which finds its texts beside it."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("draft_acceptance")


def test_a_replay_counts_steps_and_drafts_from_the_second_token_on(study: ModuleType) -> None:
    answer = study.Answer(study.WORKLOADS[0], [1, 2, 3, 4, 5], [1, 2, 3, 4, 9, 7], None, ())
    tally = study.replay(NgramProposer(1, 3), study.Shape(answer), answer, 2)
    assert tally == study.Tally(steps=3, tokens=5, drafts=3), "2 3 right and 4; 5 wrong and 9; no room for drafts, 7"
    assert tally.tokens_per_step == 5 / 3
    assert tally.drafts_per_gain == 3 / 2


def test_each_proposer_is_timed() -> None:
    for name in PROPOSERS:
        cost = cost_of(name, requests=2, context=50)
        assert cost.propose_us > 0
        assert cost.extend_us > 0
