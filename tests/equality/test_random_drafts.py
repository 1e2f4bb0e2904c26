"""No token hangs on drafts by chance: models that guess, and look-ups, asked for any number at any price, for requests
that ask for anything at once, in any settings."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from octavo import LLM
from octavo.config import SchedulerConfig, SpeculationConfig
from octavo.decoding.speculation.proposer import NO_DRAFT, Draft, DraftedRequest
from octavo.decoding.speculation.tokens_only import TokensOnly
from octavo.engine import build
from octavo.engine.speculation import OFF, PROPOSERS, draft_counts_of
from octavo.scheduling.draft_counts import DraftCounts
from tests.equality.baseline import Baseline
from tests.equality.conftest import COMMON, TinyFile
from tests.equality.random_drafts import RandomDraftCounts, random_drafting, random_workload
from tests.equality.settings import NOTHING_FORESEEN, AloneUncached, Fields
from tests.equality.test_draft_model import AlwaysRight, drafts, right_baselines  # noqa: F401  fixtures
from tests.equality.test_eagle import Heads, copied_baseline, head_folder  # noqa: F401  fixtures
from tests.equality.test_tiny import AHEAD
from tests.equality.transcript import Answer

GUESSERS = ("draft:itself", "draft:other", "eagle", "eagle3", "auto", "ngram")
Priced = Callable[[str], None]


@pytest.fixture
def priced(monkeypatch: pytest.MonkeyPatch) -> Priced:
    """Has all engines that speculate plan drafts by chance, from a seed."""

    def change(seed: str) -> None:
        def counts_of(config: SpeculationConfig, scheduler: SchedulerConfig) -> DraftCounts | None:
            most = min(random.Random(seed).choice((3, 20, 64)), scheduler.max_num_batched_tokens)
            return draft_counts_of(config, scheduler) if config.speculation == OFF else RandomDraftCounts(seed, most)

        monkeypatch.setattr(build, "draft_counts_of", counts_of)

    return change


Speculation = Callable[[str, str], str]


@pytest.fixture
def speculation(tiny_file: TinyFile, drafts: Callable[[str, str], str], head_folder: Heads) -> Speculation:  # noqa: F811
    """What `speculation` is for one of `GUESSERS` and a family."""

    def value(guesser: str, family: str) -> str:
        if guesser.startswith("eagle"):
            return f"eagle:{head_folder(family, guesser)}"
        if guesser == "draft:itself":
            return f"draft:{tiny_file(family)}"
        return f"draft:{drafts('other', family)}" if guesser == "draft:other" else guesser

    return value


def num_groups(model: str, fields: Fields) -> int:
    with LLM(model, **fields) as llm:
        return len(llm._engine._core._scheduler._manager.layout.groups)


def check(model: str, speculation: str, seed: str, folder: Path, *, num_settings: int, num_requests: int = 12) -> None:
    """One mixture of requests in some settings."""
    dtype = random.Random(seed).choice(("fp16", "fp16", "bf16", "fp8", "int8"))
    fields: Fields = {**COMMON, "kv_cache_dtype": dtype}
    with LLM(model, **fields) as llm:
        workload = random_workload(seed, llm.info.vocab_size, llm.info.eos_token_ids, num_requests)
    alone = Baseline.of(model, fields, workload, AloneUncached())
    speculating = replace(alone, fields={**fields, "speculation": speculation})
    for setting in random_drafting(
        seed, num_settings, folder, num_groups=num_groups(model, {**speculating.fields, "kv_cache_memory_bytes": 2**24})
    ):
        speculating.check(setting)


@pytest.mark.parametrize(
    ("guesser", "family"),
    [("draft:itself", "gemma3"), ("draft:other", "llama"), ("eagle3", "qwen2"), ("auto", "llama")],
)
def test_a_mixture(
    tiny_file: TinyFile, speculation: Speculation, priced: Priced, tmp_path: Path, guesser: str, family: str
) -> None:
    priced(guesser)
    check(tiny_file(family), speculation(guesser, family), guesser, tmp_path, num_settings=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", ["gemma3", *(pytest.param(name, marks=pytest.mark.long) for name in ("llama", "qwen2"))]
)
@pytest.mark.parametrize("guesser", GUESSERS)
def test_mixtures(
    tiny_file: TinyFile, speculation: Speculation, priced: Priced, tmp_path: Path, guesser: str, family: str
) -> None:
    seed = f"{guesser}, {family}"
    priced(seed)
    check(tiny_file(family), speculation(guesser, family), seed, tmp_path, num_settings=2)


# ---- chains that were cut leave the state that they should


RIGHT: dict[str, Fields] = {
    "again, parts of blocks": {"block_size": 64},
    "planned a step ahead": {**AHEAD, "block_size": 4},
    "no prefix cache": {"enable_prefix_caching": False},
    "few at a time": {"max_num_seqs": 3, "max_num_batched_tokens": 24},
    "preemption": {"block_size": 4, "max_model_len": 160, "max_num_batched_tokens": 64, **NOTHING_FORESEEN},
    "preemption, a host tier": {
        "block_size": 4,
        "max_model_len": 160,
        "kv_host_memory_bytes": 2**19,
        **NOTHING_FORESEEN,
        **AHEAD,
    },
}
"""Pools of those that preempt hold one request and a half."""


@pytest.mark.parametrize("setting", RIGHT)
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_model_is_right_about_itself_at_any_price(
    right_baselines: Callable[[str], Baseline],  # noqa: F811
    priced: Priced,
    family: str,
    setting: str,
) -> None:
    baseline, fields = right_baselines(family), RIGHT[setting]
    if "max_model_len" in fields:
        groups = num_groups(baseline.model, {**baseline.fields, "kv_cache_memory_bytes": 2**24})
        fields = {**fields, "num_kv_blocks": 2 + groups * 60}
    priced(f"{family}, {setting}")
    least = {"preemptions": 4} if "max_model_len" in fields else {}
    baseline.check(AlwaysRight(fields, times=3, at_least=least))


def test_a_model_is_right_about_itself_at_any_price_after_a_restart(
    right_baselines: Callable[[str], Baseline],  # noqa: F811
    priced: Priced,
    tmp_path: Path,
) -> None:
    priced("restart")
    disk = {"kv_disk_path": str(tmp_path), "kv_disk_size_bytes": 2**26, "block_size": 4}
    baseline = right_baselines("llama")
    baseline.check(AlwaysRight(disk))
    baseline.check(AlwaysRight(disk, at_least={"disk_loaded_blocks": 4}))


# ---- look-ups hear of all tokens that stand, and of no others


class Foreseeing:
    """A `Proposer` of the room of look-ups that has seen all answers: right always, if it knows what has come."""

    def __init__(self, answers: Iterable[Answer], seed: str) -> None:
        self._texts = [[*answer.prompt_token_ids, *answer.choices[0].token_ids] for answer in answers]
        self._known: dict[int, list[int]] = {}
        self._chance = random.Random(seed)
        self.num_removed = 0

    def add(self, slot: int, request: DraftedRequest) -> None:
        """See `Proposer`."""
        assert slot not in self._known
        self._known[slot] = list(request.token_ids)

    def extend(self, slot: int, token_ids: Sequence[int]) -> None:
        """See `Proposer`."""
        self._known[slot] += token_ids

    def remove(self, slot: int) -> None:
        """See `Proposer`."""
        assert self._rest(self._known.pop(slot)) is not None
        self.num_removed += 1

    def propose(self, slots: Sequence[int], max_tokens: Sequence[int]) -> list[Draft]:
        """See `Proposer`."""
        return [self._draft(slot, most) for slot, most in zip(slots, max_tokens, strict=True)]

    def _draft(self, slot: int, most: int) -> Draft:
        rest = self._rest(self._known[slot])
        assert rest, "nothing like this has been asked for"
        return NO_DRAFT if rest is None else Draft(rest[:most], [self._chance.random() for _ in rest[:most]])

    def _rest(self, known: list[int]) -> list[int] | None:
        return next((text[len(known) :] for text in self._texts if text[: len(known)] == known), None)


@pytest.mark.parametrize("setting", RIGHT)
def test_look_ups_hear_of_all_that_stands(
    right_baselines: Callable[[str], Baseline],  # noqa: F811
    priced: Priced,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
) -> None:
    baseline = right_baselines("llama")
    foreseeing = Foreseeing(baseline.answers.values(), setting)
    monkeypatch.setitem(PROPOSERS, "foreseeing", lambda _: TokensOnly(foreseeing))
    fields = RIGHT[setting] | ({"num_kv_blocks": 62} if "max_model_len" in RIGHT[setting] else {})
    priced(setting)
    replace(baseline, fields={**baseline.fields, "speculation": "foreseeing"}).check(AlwaysRight(fields, times=3))
    assert foreseeing.num_removed >= len(baseline.workload)
