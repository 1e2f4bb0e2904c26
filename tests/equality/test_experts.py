"""Same request, same tokens, same logprob bits, where tokens of one step meet at experts."""

from dataclasses import replace

import pytest

from octavo.engine.speculation import PROPOSERS
from tests.equality.baseline import need_isa
from tests.equality.conftest import TinyBaseline
from tests.equality.guessers import Guesser, Oracle
from tests.equality.settings import NOTHING_FORESEEN, Crowd, Setting, pool_of
from tests.equality.test_tiny import AHEAD, ISAS, PREEMPTING, SETTINGS, SMALL_POOLS
from tests.equality.tiny_models import EXPERTS
from tests.equality.workload import shuffled

CHOSEN = (
    "all at once, then shuffled with a cache made cold",
    "three at a time, last first",
    "chunks of 7",
    "warm prefix cache, parts of blocks",
    "3 threads",
    "streams that take turns",
    "planned a step ahead, budget 16",
    "neighbours that fail, budget 16",
)
SPECULATING: dict[str, Setting] = {
    "drafts": Crowd(order=shuffled, at_least={"draft_tokens": 100}),
    "drafts, planned a step ahead, 2 threads": Crowd({**AHEAD, "threads": 2}, at_least={"draft_tokens": 100}),
}


@pytest.mark.parametrize("setting", CHOSEN)
def test_settings(tiny_baseline: TinyBaseline, setting: str) -> None:
    tiny_baseline("experts and MLPs").check(SETTINGS[setting])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("model", EXPERTS)
def test_instruction_sets(tiny_baseline: TinyBaseline, model: str, isa: str) -> None:
    baseline = tiny_baseline(model, "kernels")
    need_isa(isa, baseline.isa)
    baseline.check(ISAS[isa])


@pytest.mark.parametrize("setting", ["blocks of 4", "planned a step ahead, budget 16", "chunks of 5, 3 threads"])
def test_preemption(tiny_baseline: TinyBaseline, setting: str) -> None:
    baseline = tiny_baseline("experts and MLPs", "growing")
    num_tokens, least = SMALL_POOLS["qwen2"]
    pool = pool_of(baseline.model, num_tokens, baseline.fields["kv_cache_dtype"])
    fields = {"max_model_len": 96, **pool, **NOTHING_FORESEEN, **PREEMPTING[setting]}
    baseline.check(Crowd(fields, at_least={"preemptions": least}))


@pytest.mark.parametrize("setting", SPECULATING)
def test_speculation(tiny_baseline: TinyBaseline, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    baseline = tiny_baseline("experts and MLPs")
    oracle = Oracle(baseline.answers.values())
    monkeypatch.setitem(PROPOSERS, "half_right", lambda _: Guesser(oracle.half_right))
    guessing = {**baseline.fields, "speculation": "half_right", "num_speculative_tokens": 5}
    replace(baseline, fields=guessing).check(SPECULATING[setting])
