"""A draft head changes no token and no bit of a logprob, whether it is never right, always, or now and then."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from octavo import LLM, SamplingParams
from tests.draft_heads import RandomHead, config, tensors, write_copied, write_head
from tests.equality.baseline import Baseline
from tests.equality.conftest import COMMON, WORKLOADS, TinyBaseline
from tests.equality.settings import NOTHING_FORESEEN, Again, Alone, Crowd, Setting, Streamed, pool_of
from tests.equality.test_tiny import AHEAD, SMALL_POOLS
from tests.equality.tiny_models import EVERY_FAMILY, FAMILIES, POISONABLE
from tests.equality.workload import failing, poisoned, reverse, shuffled

DRAFTED = {"draft_tokens": 100}
ACCEPTED = {"draft_tokens": 100, "accepted_draft_tokens": 100}
LAYOUTS = ("eagle", "eagle3")

SETTINGS: dict[str, Setting] = {
    "all at once": Crowd(at_least=ACCEPTED),
    "many drafts, few at a time": Crowd({"num_speculative_tokens": 24, "max_num_seqs": 2}, order=reverse),
    "budget 16": Crowd({"max_num_batched_tokens": 16}, order=shuffled),
    "chunks of 7": Crowd({"long_prefill_token_threshold": 7}, at_least=ACCEPTED),
    "no prefix cache": Crowd({"enable_prefix_caching": False}, at_least=ACCEPTED),
    "warm prefix cache": Again(at_least={"cached_tokens": 1000, **ACCEPTED}),
    "warm prefix cache, parts of blocks": Again({"block_size": 64}, at_least={"copied_tokens": 400}),
    "blocks of 1": Crowd({"block_size": 1}, at_least=ACCEPTED),
    "2 threads": Crowd({"block_size": 8, "threads": 2}, at_least=ACCEPTED),
    "streams that take turns": Streamed(),
    "planned a step ahead": Crowd(AHEAD, order=shuffled, at_least=ACCEPTED),
    "planned a step ahead, warm prefix cache": Again({**AHEAD, "block_size": 4}, at_least={"cached_tokens": 1000}),
    "neighbours that fail": Crowd(neighbours=failing, order=shuffled, at_least={"finished_error": 25}),
    "a host tier": Crowd({"kv_host_memory_bytes": 2**20}, at_least=ACCEPTED),
}

Heads = Callable[[str, str], str]


@pytest.fixture(scope="session")
def head_folder(tmp_path_factory: pytest.TempPathFactory) -> Heads:
    """The folder of a random head by the target's name in `FAMILIES` or `POISONABLE`, and its layout."""
    folder = tmp_path_factory.mktemp("heads")

    @cache
    def written(target: str, layout: str) -> str:
        model = (FAMILIES | POISONABLE)[target]
        taps = None if layout == "eagle" else (0, 1, model.layers)
        head = RandomHead(hidden=model.hidden, target_hidden=model.hidden, vocab_size=model.vocab_size, taps=taps)
        head = replace(head, layout=layout, draft_vocab=None if layout == "eagle" else 150)
        return str(write_head(folder / f"{target} {layout}", config(head), tensors(head)))

    return written


@pytest.fixture(scope="session")
def copied_baseline(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, float], Baseline]:
    """A baseline of a model with a head that copies it, less noise; its settings speculate with that head."""

    @cache
    def baseline(workload: str, noise: float) -> Baseline:
        target, head = write_copied(tmp_path_factory.mktemp("copied"), noise=noise)
        fields = {**COMMON, "kv_cache_dtype": "fp16"}
        with LLM(str(target), **fields) as llm:
            requests = WORKLOADS[workload](llm.info.vocab_size, llm.info.eos_token_ids)
        alone = Baseline.of(str(target), fields, requests, Alone())
        return replace(alone, fields={**fields, "speculation": f"eagle:{head}", "num_speculative_tokens": 5})

    return baseline


def with_head(baseline: Baseline, folder: str) -> Baseline:
    return replace(baseline, fields={**baseline.fields, "speculation": f"eagle:{folder}", "num_speculative_tokens": 5})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_a_random_head(tiny_baseline: TinyBaseline, head_folder: Heads, family: str, layout: str) -> None:
    with_head(tiny_baseline(family), head_folder(family, layout)).check(Crowd(at_least=DRAFTED))


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_head_that_is_right(copied_baseline, setting: str) -> None:
    copied_baseline("all", 0.0).check(SETTINGS[setting])


@pytest.mark.parametrize("setting", ["all at once", "chunks of 7", "warm prefix cache", "planned a step ahead"])
def test_a_head_that_is_right_now_and_then(copied_baseline, setting: str) -> None:
    copied_baseline("all", 0.1).check(SETTINGS[setting])


@pytest.mark.parametrize("fields", [{}, AHEAD, {"kv_host_memory_bytes": 2**18}], ids=["plain", "ahead", "host tier"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_small_pool(tiny_baseline: TinyBaseline, head_folder: Heads, layout: str, fields: dict[str, object]) -> None:
    baseline = with_head(tiny_baseline("llama", "growing"), head_folder("llama", layout))
    num_tokens, least = SMALL_POOLS["llama"]
    pool = pool_of(baseline.model, num_tokens, baseline.fields["kv_cache_dtype"])
    settings = {"max_model_len": 96, **pool, **NOTHING_FORESEEN, "block_size": 4, **fields}
    baseline.check(Crowd(settings, at_least={"preemptions": least // 2, **DRAFTED}))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("model", ["int8 activations", "windows"])
def test_neighbours_full_of_nan(tiny_baseline: TinyBaseline, head_folder: Heads, model: str, layout: str) -> None:
    neighbours = Crowd({**AHEAD}, neighbours=poisoned, order=shuffled, at_least={"finished_error": 24})
    with_head(tiny_baseline(model), head_folder(model, layout)).check(neighbours)


def test_the_reference_executor_drafts_too(copied_baseline) -> None:
    """Its bits depend on the company, so there is nothing to compare."""
    speculating = copied_baseline("growing", 0.0)
    Crowd({"executor": "reference"}, at_least=ACCEPTED).run(speculating.model, speculating.fields, speculating.workload)


@pytest.mark.parametrize(
    "fields",
    [{}, {"long_prefill_token_threshold": 7}, {"block_size": 64}, {**AHEAD, "block_size": 4}, {"max_num_seqs": 2}],
    ids=["plain", "chunks of 7", "parts of blocks", "ahead", "two at a time"],
)
def test_a_copy_is_right_wherever_its_state_comes_from(copied_baseline, fields: dict[str, object]) -> None:
    """Greedy answers, twice: computed, then behind hits in the prefix cache."""
    speculating = copied_baseline("growing", 0.0)
    prompts = [[*range(20, 20 + count), 7 + count] for count in (5, 23, 41, 64, 90)]
    params = SamplingParams(max_tokens=30, temperature=0.0, ignore_eos=True)
    with LLM(speculating.model, **{**speculating.fields, **fields}) as llm:
        answers = [[output.outputs[0].token_ids for output in llm.generate(prompts, params)] for _ in range(2)]
        counts = llm.load().counters
    assert answers[0] == answers[1]
    drafted, accepted = counts["draft_tokens"], counts["accepted_draft_tokens"]
    assert drafted > 200 and accepted >= 0.98 * drafted
