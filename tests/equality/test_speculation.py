"""Speculation changes no token and no bit of a logprob, however good or bad the guesses are."""

from collections.abc import Callable, Sequence

import pytest

from octavo.engine.speculation import PROPOSERS
from tests.equality import guessers
from tests.equality.baseline import Baseline
from tests.equality.conftest import TinyBaseline
from tests.equality.core_process import CoreProcess
from tests.equality.guessers import Guesser, Oracle
from tests.equality.settings import NOTHING_FORESEEN, Again, Crowd, Setting, Streamed, pool_of
from tests.equality.test_tiers import HOST, PushedOut, Restarted, small_pool
from tests.equality.test_tiny import AHEAD, SMALL_POOLS
from tests.equality.tiny_models import EVERY_FAMILY, POISONABLE
from tests.equality.workload import failing, poisoned, reverse, shuffled

GUESSERS = ("right", "wrong", "half_right", "seen_before", "fails", "ngram", "suffix", "auto")
DRAFTED = {"draft_tokens": 100}
ACCEPTED = {"draft_tokens": 100, "accepted_draft_tokens": 100}

SETTINGS: dict[str, Setting] = {
    "all at once": Crowd(at_least=DRAFTED),
    "one draft": Crowd({"num_speculative_tokens": 1}, at_least=DRAFTED),
    "many drafts, few at a time": Crowd({"num_speculative_tokens": 24, "max_num_seqs": 2}, order=reverse),
    "budget 16": Crowd({"max_num_batched_tokens": 16}, order=shuffled),
    "chunks of 7": Crowd({"long_prefill_token_threshold": 7}),
    "no prefix cache": Crowd({"enable_prefix_caching": False}),
    "warm prefix cache": Again(at_least={"cached_tokens": 1000}),
    "warm prefix cache, parts of blocks": Again({"block_size": 64}, at_least={"copied_tokens": 400}),
    "blocks of 1": Crowd({"block_size": 1}),
    "blocks of 8, 2 threads": Crowd({"block_size": 8, "threads": 2}),
    "streams that take turns": Streamed(),
    "planned a step ahead": Crowd(AHEAD, order=shuffled, at_least=DRAFTED),
    "planned a step ahead, budget 16": Crowd({**AHEAD, "max_num_batched_tokens": 16}),
    "planned a step ahead, warm prefix cache": Again({**AHEAD, "block_size": 4}, at_least={"cached_tokens": 1000}),
    "planned a step ahead, streams that take turns": Streamed({**AHEAD, "threads": 2}),
    "neighbours that fail": Crowd(neighbours=failing, order=shuffled, at_least={"finished_error": 25}),
    "planned a step ahead, neighbours that fail": Crowd(
        AHEAD, neighbours=failing, order=shuffled, at_least={"finished_error": 25}
    ),
    "a host tier": Crowd({"kv_host_memory_bytes": 2**20}),
}
PREEMPTING: dict[str, dict[str, object]] = {
    "blocks of 16": {},
    "blocks of 4": {"block_size": 4},
    "budget 16": {"block_size": 4, "max_num_batched_tokens": 16},
    "planned a step ahead": {"block_size": 4, **AHEAD},
    "longest prefix first": {"block_size": 4, "scheduling_policy": "prefix"},
    "host tier": {"block_size": 4, "kv_host_memory_bytes": 2**18},
}


@pytest.fixture
def speculating(monkeypatch: pytest.MonkeyPatch) -> Callable[[Baseline, str], Baseline]:
    """A baseline whose settings speculate, guesses made by one of `GUESSERS`."""

    def change(baseline: Baseline, name: str) -> Baseline:
        oracle = Oracle(baseline.answers.values())
        guess: Callable[[list[int], int], Sequence[int]] = getattr(oracle, name, None) or getattr(guessers, name, None)
        if guess is not None:
            monkeypatch.setitem(PROPOSERS, name, lambda _: Guesser(guess))
        fields = {**baseline.fields, "speculation": name, "num_speculative_tokens": 5}
        return Baseline(baseline.model, fields, baseline.workload, baseline.answers, baseline.isa)

    return change


CHOSEN: dict[str, Setting] = {
    "few at a time": Crowd({"num_speculative_tokens": None, "max_num_seqs": 2}, order=reverse),
    "planned a step ahead": Crowd({"num_speculative_tokens": None, **AHEAD}, order=shuffled),
    "warm prefix cache": Again({"num_speculative_tokens": None}, at_least={"cached_tokens": 1000}),
}
"""Counts that hang on how long steps take, which is not the same twice: there may be many drafts or few."""


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("guesser", ["right", "half_right"])
def test_every_setting(tiny_baseline: TinyBaseline, speculating, guesser: str, setting: str) -> None:
    speculating(tiny_baseline("llama"), guesser).check(SETTINGS[setting])


@pytest.mark.parametrize("setting", CHOSEN)
@pytest.mark.parametrize("guesser", ["right", "half_right", "auto"])
def test_counts_that_hang_on_times(tiny_baseline: TinyBaseline, speculating, guesser: str, setting: str) -> None:
    speculating(tiny_baseline("llama"), guesser).check(CHOSEN[setting])


@pytest.mark.parametrize("guesser", GUESSERS)
@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_every_guesser(tiny_baseline: TinyBaseline, speculating, family: str, guesser: str) -> None:
    least = {"right": ACCEPTED, "wrong": DRAFTED, "half_right": DRAFTED, "seen_before": DRAFTED}.get(guesser, {})
    speculating(tiny_baseline(family), guesser).check(Crowd(at_least=least))


@pytest.mark.parametrize("setting", PREEMPTING)
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_small_pool(tiny_baseline: TinyBaseline, speculating, family: str, setting: str) -> None:
    baseline = speculating(tiny_baseline(family, "growing"), "half_right")
    num_tokens, least = SMALL_POOLS[family]
    pool = pool_of(baseline.model, num_tokens, baseline.fields["kv_cache_dtype"])
    fields = {"max_model_len": 96, **pool, **NOTHING_FORESEEN, **PREEMPTING[setting]}
    baseline.check(Crowd(fields, at_least={"preemptions": least // 2, **DRAFTED}))


@pytest.mark.parametrize("kv_cache_dtype", ["int8", "fp8"])
def test_codes_in_the_cache(tiny_baseline: TinyBaseline, speculating, kv_cache_dtype: str) -> None:
    speculating(tiny_baseline("gemma3", "all", kv_cache_dtype), "half_right").check(Again({"block_size": 64}))


@pytest.mark.parametrize("kv_cache_dtype", ["fp32", "bf16"])
def test_other_floats_in_the_cache(tiny_baseline: TinyBaseline, speculating, kv_cache_dtype: str) -> None:
    speculating(tiny_baseline("gemma3", "kernels", kv_cache_dtype), "half_right").check(Crowd(AHEAD))


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_blocks_that_come_back_from_disk(tiny_baseline: TinyBaseline, speculating, tmp_path, family: str) -> None:
    """What is kept was written beside drafts, right and wrong ones, and is read by others."""
    fields = {"block_size": 4, **AHEAD} if family == "llama" else {}
    speculating(tiny_baseline(family), "half_right").check(Restarted(tmp_path, fields))


def test_blocks_that_come_back_from_host_memory(tiny_baseline: TinyBaseline, speculating) -> None:
    baseline = speculating(tiny_baseline("gemma3", "growing"), "half_right")
    pool = small_pool(baseline.model, "gemma3", baseline.fields["kv_cache_dtype"])
    baseline.check(PushedOut({**pool, **HOST, "block_size": 4, **AHEAD}))


@pytest.mark.parametrize("name", ["ngram", "suffix"])
def test_beside_neighbours_that_leave(tiny_baseline: TinyBaseline, speculating, name: str) -> None:
    """Through a core process; they leave with drafts under way."""
    fields = AHEAD if name == "suffix" else {"block_size": 4, "prompt_lookup_min": 1}
    speculating(tiny_baseline("llama"), name).check(CoreProcess(fields, neighbours_per_request=1, at_least=DRAFTED))


@pytest.mark.parametrize("guesser", ["right", "half_right"])
@pytest.mark.parametrize("model", POISONABLE)
def test_neighbours_full_of_nan(tiny_baseline: TinyBaseline, speculating, model: str, guesser: str) -> None:
    neighbours = Crowd({**AHEAD}, neighbours=poisoned, order=shuffled, at_least={"finished_error": 24})
    speculating(tiny_baseline(model), guesser).check(neighbours)


def test_right_guesses_save_steps(tiny_baseline: TinyBaseline, speculating) -> None:
    """An oracle that is asked for five has an answer of 40 tokens done in about seven steps."""
    right = speculating(tiny_baseline("llama"), "right")
    right.check(Crowd({"num_speculative_tokens": 8}, at_least={"accepted_draft_tokens": 300}))
