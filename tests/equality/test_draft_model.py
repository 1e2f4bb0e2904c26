"""A draft model changes no token and no bit of a logprob, and its KV is where the first model's is: a model that drafts
for itself is always right, whatever was shared, copied, lost, moved or taken back before."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest

from octavo import LLM
from octavo.decoding.speculation.draft_model import DraftModelProposer
from octavo.engine import second_model
from octavo.execution.loader.tiny.spec import TinyModel
from octavo.execution.loader.tiny.write import write_tiny_model
from octavo.execution.protocols import ProgramExecutor, RanStep, SlotArrays, StepBatch
from octavo.execution.quant import TensorType as Q
from tests.equality.baseline import Baseline
from tests.equality.conftest import COMMON, TinyBaseline
from tests.equality.settings import (
    NOTHING_FORESEEN,
    Again,
    AloneUncached,
    Crowd,
    Fields,
    Setting,
    assert_grown,
    crowd,
)
from tests.equality.test_speculation import ACCEPTED, DRAFTED, PREEMPTING, SETTINGS
from tests.equality.test_tiers import Restarted
from tests.equality.test_tiny import AHEAD, SMALL_POOLS
from tests.equality.texts import text_workload
from tests.equality.tiny_models import EVERY_FAMILY, POISONABLE
from tests.equality.transcript import Transcripts
from tests.equality.workload import Request, Workload, greedy, poisoned, shuffled
from tests.real_models import model_path

OTHERS = {
    "llama": TinyModel(tensor_type=Q.Q8_0, layers=3, hidden=64, heads=4, kv_heads=1, head_dim=32, seed=3),
    "qwen2": TinyModel(architecture="qwen2", tensor_type=Q.F16, layers=1, hidden=64, heads=2, kv_heads=2, seed=4),
    "gemma3": TinyModel(
        architecture="gemma3", tensor_type=Q.Q8_0, layers=4, head_dim=64, kv_heads=1, window=40, seed=5
    ),
}
"""Other weights and other shapes than the models of these families."""
OF_ANOTHER_KIND = {
    "llama": TinyModel(architecture="gemma3", layers=3, head_dim=64, kv_heads=1, window=12, seed=6),
    "qwen2": OTHERS["llama"],
    "gemma3": TinyModel(layers=2, kv_heads=1, seed=7),
}
"""Windows beside none, and none beside windows. Their tokens are others, which only makes them wrong."""

Drafting = Callable[[Baseline, str, str], Baseline]


@pytest.fixture(scope="session")
def drafts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], str]:
    """The file of a draft model of its own, by what it is and for which family; written at its first use."""
    folder = tmp_path_factory.mktemp("drafts")
    models = {"other": OTHERS, "another_kind": OF_ANOTHER_KIND}

    def file(which: str, family: str) -> str:
        path = folder / f"{which}-{family}.gguf"
        return str(path if path.exists() else write_tiny_model(path, models[which][family]))

    return file


@pytest.fixture
def drafted_by(drafts: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch) -> Drafting:
    """A baseline whose settings have a draft model: the model itself, another, or one of another kind."""

    def change(baseline: Baseline, family: str, which: str) -> Baseline:
        name = baseline.model if which == "itself" else drafts(which, family)
        if which == "another_kind":
            monkeypatch.setattr(second_model, "_require_same_tokens", lambda *_: None)
        return replace(
            baseline, fields={**baseline.fields, "speculation": f"draft:{name}", "num_speculative_tokens": 5}
        )

    return change


def pool_of(baseline: Baseline, num_tokens: int) -> Fields:
    """KV memory for so many tokens of both models."""
    with LLM(baseline.model, **{**baseline.fields, "kv_cache_memory_bytes": 2**24}) as llm:
        return {"kv_cache_memory_bytes": num_tokens * llm.info.kv_bytes_per_token}


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_setting(tiny_baseline: TinyBaseline, drafted_by: Drafting, setting: str) -> None:
    drafted_by(tiny_baseline("llama"), "llama", "itself").check(SETTINGS[setting])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("setting", SETTINGS)
def test_every_setting_with_other_weights(tiny_baseline: TinyBaseline, drafted_by: Drafting, setting: str) -> None:
    drafted_by(tiny_baseline("llama"), "llama", "other").check(SETTINGS[setting])


@pytest.mark.parametrize("which", ["itself", "other", "another_kind"])
@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_every_family(tiny_baseline: TinyBaseline, drafted_by: Drafting, family: str, which: str) -> None:
    baseline = drafted_by(tiny_baseline(family), family, which)
    baseline.check(Crowd(at_least=ACCEPTED if which == "itself" else DRAFTED))
    baseline.check(Again({**AHEAD, "block_size": 64}, at_least={"copied_tokens": 400}))


@pytest.mark.parametrize("setting", PREEMPTING)
@pytest.mark.parametrize("which", ["itself", pytest.param("another_kind", marks=[pytest.mark.slow, pytest.mark.long])])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_small_pool(tiny_baseline: TinyBaseline, drafted_by: Drafting, family: str, which: str, setting: str) -> None:
    baseline = drafted_by(tiny_baseline(family, "growing"), family, which)
    num_tokens, least = SMALL_POOLS[family]
    num_tokens = num_tokens if which == "itself" else num_tokens * 5 // 4  # blocks that are not all used
    fields = {"max_model_len": 96, **pool_of(baseline, num_tokens), **NOTHING_FORESEEN, **PREEMPTING[setting]}
    baseline.check(Crowd(fields, at_least={"preemptions": least // 3, "draft_tokens": 50}))


@pytest.mark.parametrize("kv_cache_dtype", ["int8", "fp8"])
def test_codes_in_the_cache(tiny_baseline: TinyBaseline, drafted_by: Drafting, kv_cache_dtype: str) -> None:
    baseline = drafted_by(tiny_baseline("gemma3", "all", kv_cache_dtype), "gemma3", "another_kind")
    baseline.check(Again({"block_size": 64}, at_least=DRAFTED))


@pytest.mark.parametrize("which", ["itself", "other"])
def test_blocks_from_a_disk(tiny_baseline: TinyBaseline, drafted_by: Drafting, tmp_path: Path, which: str) -> None:
    drafted_by(tiny_baseline("llama"), "llama", which).check(Restarted(tmp_path))


@pytest.mark.parametrize("model", POISONABLE)
def test_neighbours_full_of_nan(tiny_baseline: TinyBaseline, drafted_by: Drafting, model: str) -> None:
    neighbours = Crowd({**AHEAD}, neighbours=poisoned, order=shuffled, at_least={"finished_error": 24})
    drafted_by(tiny_baseline(model), model, "itself").check(neighbours)


@pytest.mark.parametrize("method", ["propose", "ran"])
def test_a_draft_model_that_fails(
    tiny_baseline: TinyBaseline, drafted_by: Drafting, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    whole = getattr(DraftModelProposer, method)
    calls = []

    def fails(self: DraftModelProposer, *arguments: RanStep | SlotArrays) -> object:
        calls.append(method)
        if len(calls) % 4 == 0:
            raise MemoryError
        return whole(self, *arguments)

    monkeypatch.setattr(DraftModelProposer, method, fails)
    drafted_by(tiny_baseline("llama"), "llama", "itself").check(Crowd({**AHEAD, "max_num_seqs": 8}))
    assert len(calls) > 8


# ---- always right


def greedy_workload(vocab_size: int, _: object) -> Workload:
    """The likeliest token each time, and no end before the last: every draft of the same model is right. Prompts share
    beginnings, whole blocks and parts of some."""
    text = tuple((7 * i * i + 13 * i) % (vocab_size - 8) + 8 for i in range(200))
    lengths = [(1, 24), (16, 40), (40, 30), (41, 30), (90, 20), (64, 33), (130, 17), (7, 50)]
    twigs = [Request(f"{n} tokens", text[:n], greedy(most, logprobs=1)) for n, most in lengths]
    return (*twigs, *[replace(one, name=f"{one.name} and 9", prompt=(*one.prompt, 9)) for one in twigs])


@dataclass(frozen=True)
class AlwaysRight:
    """All requests at once, several times; every draft that was run was right."""

    fields: Fields = field(default_factory=dict)
    times: int = 2
    at_least: Fields = field(default_factory=dict)

    def run(self, model: str, fields: Fields, workload: Workload) -> Transcripts:
        """See `Setting.run`."""
        with LLM(model, **{**fields, **self.fields}) as llm:
            before = llm.load()
            for i in range(self.times):
                transcripts = crowd(llm, shuffled(workload) if i % 2 else workload)
            after = llm.load()
        counters = after.counters
        assert counters["draft_tokens"] > 100
        assert counters["accepted_draft_tokens"] == counters["draft_tokens"]
        assert_grown(before, after, self.at_least)  # type: ignore[arg-type]
        return transcripts


RIGHT: dict[str, Setting] = {
    "all at once": AlwaysRight(times=1),
    "again, parts of blocks": AlwaysRight({"block_size": 64}, at_least={"cached_tokens": 300, "copied_tokens": 100}),
    "blocks of 4, budget 24": AlwaysRight({"block_size": 4, "max_num_batched_tokens": 24}),
    "planned a step ahead": AlwaysRight({**AHEAD, "block_size": 4}, at_least={"cached_tokens": 300}),
    "streams of nine drafts": AlwaysRight({"num_speculative_tokens": 9, "max_num_seqs": 3}),
    "chunks of 7": AlwaysRight({"long_prefill_token_threshold": 7, **AHEAD}),
    "no prefix cache": AlwaysRight({"enable_prefix_caching": False}),
}


@pytest.fixture(scope="module")
def right_baselines(tiny_file: Callable[[str], str]) -> Callable[[str], Baseline]:
    """By family: a model that drafts for itself."""
    made: dict[str, Baseline] = {}

    def baseline(family: str) -> Baseline:
        if family not in made:
            model = tiny_file(family)
            with LLM(model, **COMMON) as llm:
                workload = greedy_workload(llm.info.vocab_size, ())
            alone = Baseline.of(model, COMMON, workload, AloneUncached())
            made[family] = replace(
                alone, fields={**COMMON, "speculation": f"draft:{model}", "num_speculative_tokens": 5}
            )
        return made[family]

    return baseline


@pytest.mark.parametrize("setting", RIGHT)
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_model_is_right_about_itself(right_baselines: Callable[[str], Baseline], family: str, setting: str) -> None:
    right_baselines(family).check(RIGHT[setting])


@pytest.mark.parametrize("skipped", ["everything", "last drafts", "prompts"])
def test_state_that_is_missing_is_seen(
    right_baselines: Callable[[str], Baseline], monkeypatch: pytest.MonkeyPatch, skipped: str
) -> None:
    """A suite that cannot fail proves nothing."""
    whole = DraftModelProposer._rest

    def rest(self: DraftModelProposer, step: RanStep) -> StepBatch | None:
        had_drafts = bool(self._chains)
        found = whole(self, step)
        is_skipped = {"everything": True, "last drafts": had_drafts, "prompts": len(step.batch.token_ids) > 40}
        return None if is_skipped[skipped] else found

    monkeypatch.setattr(DraftModelProposer, "_rest", rest)
    with pytest.raises(AssertionError):
        right_baselines("llama").check(RIGHT["all at once"])


@pytest.mark.parametrize("tiers", [{}, {"kv_host_memory_bytes": 2**19}], ids=["none", "host"])
@pytest.mark.parametrize("ahead", [{}, AHEAD], ids=["", "ahead"])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_model_is_right_about_itself_after_preemption(
    right_baselines: Callable[[str], Baseline], family: str, ahead: Fields, tiers: Fields
) -> None:
    baseline = right_baselines(family)
    pool = pool_of(baseline, 220 if family == "llama" else 180)
    fields = {"max_model_len": 160, "block_size": 4, **pool, **NOTHING_FORESEEN, **ahead, **tiers}
    baseline.check(AlwaysRight(fields, times=3, at_least={"preemptions": 4}))


def test_a_model_is_right_about_itself_after_a_restart(
    right_baselines: Callable[[str], Baseline], tmp_path: Path
) -> None:
    disk = {"kv_disk_path": str(tmp_path), "kv_disk_size_bytes": 2**26}
    baseline = right_baselines("gemma3")
    baseline.check(AlwaysRight(disk))
    baseline.check(AlwaysRight(disk, times=1, at_least={"disk_loaded_blocks": 4}))


class NowAndThenWrong(DraftModelProposer):
    """Passes on what it guessed, or something else from some token on; notes whether what it left alone was right."""

    checked: ClassVar[list[bool]] = []

    def __init__(self, executor: ProgramExecutor, vocab_size: int) -> None:
        super().__init__(executor, vocab_size)
        self.untouched: dict[int, list[int]] = {}

    def propose(
        self, slots: Sequence[int], most: Sequence[int], least_chance: float, held: SlotArrays
    ) -> list[list[int]]:
        """See `Proposer`."""
        guesses = super().propose(slots, most, least_chance, held)
        for slot, guess in zip(slots, guesses, strict=True):
            place = int(held.num_tokens[slot]) % (len(guess) + 2)
            if place < len(guess):
                guess[place:] = [token ^ 1 for token in guess[place:]]
            else:
                self.untouched[slot] = list(guess)
        return guesses

    def ran(self, step: RanStep) -> Collection[int]:
        """See `Proposer`."""
        untouched, self.untouched = self.untouched, {}
        for slot, guess in untouched.items():
            if slot in step.drawn:
                self.checked.append(step.drawn[slot][: len(guess)] == guess)
        return super().ran(step)


@pytest.mark.parametrize("fields", [{}, {**AHEAD, "block_size": 4}], ids=["", "ahead"])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_model_is_right_about_itself_after_it_was_wrong(
    right_baselines: Callable[[str], Baseline], monkeypatch: pytest.MonkeyPatch, family: str, fields: Fields
) -> None:
    """Of drafts that were taken back nothing is left."""
    NowAndThenWrong.checked.clear()
    monkeypatch.setattr(second_model, "DraftModelProposer", NowAndThenWrong)
    right_baselines(family).check(Again({**fields, "num_speculative_tokens": 4}, at_least={"wasted_draft_tokens": 20}))
    assert len(NowAndThenWrong.checked) > 30
    assert all(NowAndThenWrong.checked)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_model_is_right_about_itself_behind_what_others_left(
    right_baselines: Callable[[str], Baseline], family: str
) -> None:
    """Prompts whose vector was wanted, and the turns of a conversation, whose last block is copied from."""
    baseline = right_baselines(family)
    prompt = list(range(8, 8 + 70))
    with LLM(baseline.model, **baseline.fields) as llm:
        llm.embed([prompt])
        before = llm.load().counters
        for turn in range(3):
            (output,) = llm.generate([prompt], greedy(12), session="conversation")
            assert output.num_cached_tokens >= 64
            prompt = [*prompt, *output.outputs[0].token_ids, 9 + turn]
        after = llm.load().counters
    assert after["draft_tokens"] - before["draft_tokens"] > 20
    assert after["accepted_draft_tokens"] == after["draft_tokens"]


@pytest.mark.slow
def test_a_real_model_is_right_about_itself() -> None:
    model = str(model_path("smollm2-135m"))
    fields: Fields = {"max_model_len": 288, "threads": 2, "kv_cache_memory_bytes": 256 * 2**20}
    workload = tuple(Request(request.name, request.prompt, greedy(24, logprobs=1)) for request in text_workload(4, 10))
    baseline = Baseline.of(model, fields, workload, AloneUncached())
    replace(baseline, fields={**fields, "speculation": f"draft:{model}", "num_speculative_tokens": 5}).check(
        AlwaysRight(times=2)
    )
