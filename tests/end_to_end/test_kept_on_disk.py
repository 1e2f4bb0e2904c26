"""Engines with a disk tier: what one has computed the next one loads, and whatever befalls the files, answers are the
same as without any."""

import errno
import logging
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from octavo.execution.kv_store.slot_file import DiskFile
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from octavo.execution.quant import TensorType
from octavo.kv.speed import PrefillSpeed
from tests.real_models import model_path

MODELS = {
    "llama": TinyModel(tensor_type=TensorType.Q8_0, hidden=128, heads=4, kv_heads=2, head_dim=64),
    "gemma3": TinyModel(architecture="gemma3", layers=3, head_dim=64, kv_heads=1, window=40),
}
SIZE = 64 << 20
SETTINGS: dict[str, Any] = {"threads": 1, "max_model_len": 1024, "num_kv_blocks": 400}


@dataclass
class Told:
    """What an engine has answered."""

    answers: list[object]
    """Token ids and logprobs of each prompt."""
    num_loaded: int
    """Prompt tokens that came from disk."""


def prompts(vocab_size: int = 300) -> list[list[int]]:
    """Some that share their beginning, some that do not."""
    chance = random.Random(11)
    shared = [chance.randrange(20, vocab_size) for _ in range(200)]
    ends = [[chance.randrange(20, vocab_size) for _ in range(length)] for length in (7, 40, 100)]
    return [shared + end for end in ends] + [
        [chance.randrange(20, vocab_size) for _ in range(n)] for n in (15, 64, 333)
    ]


def ask(file: str, path: Path | None, asked: Sequence[list[int]] | None = None, **settings: Any) -> Told:
    """Starts an engine, asks the prompts one after the other, ends it."""
    disk = {} if path is None else {"kv_disk_path": str(path), "kv_disk_size_bytes": SIZE}
    llm = LLM(file, **{**SETTINGS, **disk, **settings})
    try:
        return tell(llm, prompts() if asked is None else asked)
    finally:
        llm.close()


def tell(llm: LLM, asked: Sequence[list[int]]) -> Told:
    told = Told([], 0)
    params = SamplingParams(max_tokens=12, seed=5, ignore_eos=True, logprobs=3)
    for prompt in asked:
        ((output,), (stats,)) = ((done := llm.generate([prompt], params)[0]).outputs, done.ledger)
        assert output.error is None and stats is not None
        told.answers.append((output.token_ids, output.logprobs))
        told.num_loaded += stats.num_loaded_tokens.get("disk", 0)
    return told


def the_folder(path: Path) -> Path:
    (only,) = path.glob("kv1-*")
    return only


def all_full_blocks(asked: Sequence[list[int]]) -> int:
    """Tokens of full blocks of the prompts, those shared with earlier ones once; the last token is always computed."""
    found = {tuple(prompt[: end + 16]) for prompt in asked for end in range(0, (len(prompt) - 1) // 16 * 16, 16)}
    return 16 * len(found)


@pytest.fixture(autouse=True)
def what_can_be_loaded_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computing these models is about as quick as reading their blocks: that must not decide what is tested."""
    monkeypatch.setattr(PrefillSpeed, "seconds", lambda self, num_tokens: None)


@pytest.fixture(scope="module", params=list(MODELS))
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf", MODELS[request.param], format="gguf"))


@pytest.fixture(scope="module")
def expected(file: str) -> list[object]:
    """Answers without a tier."""
    return ask(file, None).answers


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.WARNING]


def test_a_restart_loads_what_was_computed(
    file: str, expected: list[object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = ask(file, tmp_path)
    assert (first.answers, first.num_loaded) == (expected, 0)
    again = ask(file, tmp_path)
    assert again.answers == expected
    assert again.num_loaded == all_full_blocks(prompts())
    assert not warnings(caplog)


@pytest.mark.parametrize("change", [{"isa": "portable"}, {"threads": 2}, {"max_num_batched_tokens": 32}], ids=str)
def test_who_loads_may_differ_from_who_stored_in_what_changes_no_bit(
    change: dict[str, Any], file: str, expected: list[object], tmp_path: Path
) -> None:
    ask(file, tmp_path)
    again = ask(file, tmp_path, **change)
    assert again.answers == expected
    assert again.num_loaded == all_full_blocks(prompts())


@pytest.mark.parametrize("change", [{"kv_cache_dtype": "bf16"}, {"block_size": 32}, {"executor": "reference"}], ids=str)
def test_nothing_is_loaded_by_whom_it_is_foreign_to(change: dict[str, Any], file: str, tmp_path: Path) -> None:
    ask(file, tmp_path)
    other = ask(file, tmp_path, **change)
    assert other.num_loaded == 0
    if "executor" not in change:  # the reference's bits depend on how a prompt is cut
        assert other.answers == ask(file, None, **change).answers
    assert ask(file, tmp_path).num_loaded == all_full_blocks(prompts())


def test_nothing_is_loaded_by_another_model(file: str, expected: list[object], tmp_path: Path) -> None:
    model = TinyModel(tensor_type=TensorType.Q8_0, hidden=128, heads=4, kv_heads=2, head_dim=64, seed=9)
    other = str(write_tiny_model(tmp_path / "other.gguf", model, format="gguf"))
    ask(other, tmp_path / "kv")
    told = ask(file, tmp_path / "kv")
    assert (told.answers, told.num_loaded) == (expected, 0)
    assert len(list((tmp_path / "kv").glob("kv1-*"))) == 2


def spoil_some_blocks(folder: Path) -> None:
    data = bytearray((folder / "blocks").read_bytes())
    for at in range(100, len(data), len(data) // 9):
        data[at] ^= 0x10
    (folder / "blocks").write_bytes(data)


def spoil_some_entries(folder: Path) -> None:
    data = bytearray((folder / "entries").read_bytes())
    for at in range(1000, len(data), 5000):
        data[at] ^= 1
    (folder / "entries").write_bytes(data)


def cut(name: str) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size // 2)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "blocks": spoil_some_blocks,
    "entries": spoil_some_entries,
    "blocks cut": cut("blocks"),
    "entries cut": cut("entries"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_computed_anew(
    damage: Callable[[Path], None],
    file: str,
    expected: list[object],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ask(file, tmp_path)
    damage(the_folder(tmp_path))
    told = ask(file, tmp_path)
    assert told.answers == expected
    assert 0 < told.num_loaded < all_full_blocks(prompts())
    assert len(warnings(caplog)) <= 1
    healed = ask(file, tmp_path)
    assert (healed.answers, healed.num_loaded) == (expected, all_full_blocks(prompts()))


def test_two_engines_on_one_path_do_not_disturb_each_other(
    file: str, expected: list[object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = {"kv_disk_path": str(tmp_path), "kv_disk_size_bytes": SIZE}
    first = LLM(file, **SETTINGS, **disk)
    second = LLM(file, **{**SETTINGS, **disk, "kv_disk_size_bytes": SIZE + (8 << 20)})
    third = LLM(file, **SETTINGS, **disk)
    assert "claimed" in warnings(caplog)[-1]
    for prompt, answer in zip(prompts(), expected, strict=True):
        for llm in (first, second, third):
            assert tell(llm, [prompt]).answers == [answer]
    for llm in (first, second, third):
        llm.close()
    assert len(list(tmp_path.glob("kv1-*"))) == 2
    assert ask(file, tmp_path).answers == expected


def test_a_folder_that_is_deleted_meanwhile_is_no_tier(
    file: str, expected: list[object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ask(file, tmp_path)
    llm = LLM(file, **SETTINGS, kv_disk_path=str(tmp_path), kv_disk_size_bytes=SIZE)
    answers = tell(llm, prompts()[:2]).answers
    for gone in the_folder(tmp_path).iterdir():
        gone.unlink()
    answers += tell(llm, prompts()[2:]).answers
    llm.close()
    assert answers == expected
    assert len(warnings(caplog)) <= 1


@pytest.mark.parametrize("after_bytes", [0, 30_000, 200_000])
def test_a_full_disk_is_no_tier(
    after_bytes: int,
    file: str,
    expected: list[object],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left, write = [after_bytes], DiskFile.write

    def limited(self: DiskFile, offset: int, data: bytes | memoryview) -> None:
        left[0] -= len(data)
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, offset, data)

    monkeypatch.setattr(DiskFile, "write", limited)
    assert ask(file, tmp_path).answers == expected
    monkeypatch.undo()
    told = ask(file, tmp_path)
    assert told.answers == expected
    assert told.num_loaded < all_full_blocks(prompts())
    (warning,) = warnings(caplog)
    assert "No space left" in warning


CHILD = """
import sys
from pathlib import Path
from tests.end_to_end.test_kept_on_disk import SETTINGS, SIZE, prompts, tell
from octavo import LLM
llm = LLM(sys.argv[1], **SETTINGS, kv_disk_path=sys.argv[2], kv_disk_size_bytes=SIZE)
for prompt in prompts():
    tell(llm, [prompt])
    print(len(prompt), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("after", [1, 4, 6])
def test_an_engine_that_is_killed_leaves_what_it_had_stored(
    after: int, file: str, expected: list[object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = [sys.executable, "-c", CHILD, file, str(tmp_path)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(after):
            assert process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    told = ask(file, tmp_path)
    assert told.answers == expected
    # Stores run beside the steps: what was asked last may be missing, what was asked before it was stored by then.
    assert told.num_loaded >= all_full_blocks(prompts()[: after - 1]) - 16 * 16
    assert not warnings(caplog)


@pytest.mark.slow
def test_three_thousand_tokens_after_a_restart_come_sooner_than_they_are_computed(tmp_path: Path) -> None:
    file = str(model_path("smollm2-135m"))
    chance = random.Random(3)
    prompt = [chance.randrange(100, 40_000) for _ in range(3000)]
    settings = {"max_model_len": 3100, "kv_disk_path": str(tmp_path), "kv_disk_size_bytes": 1 << 30, "threads": 1}

    def told() -> tuple[object, int, float]:
        llm = LLM(file, **settings)
        llm.generate([[1, 2, 3]], SamplingParams(max_tokens=1))
        done = llm.generate([prompt], SamplingParams(max_tokens=24, temperature=0, ignore_eos=True, logprobs=2))[0]
        llm.close()
        ((output,), (stats,)) = (done.outputs, done.ledger)
        assert stats is not None and stats.first_token_s is not None
        seconds = stats.first_token_s - stats.arrival_s
        return (output.token_ids, output.logprobs), stats.num_loaded_tokens.get("disk", 0), seconds

    cold, restarted = told(), told()
    assert restarted[0] == cold[0]
    assert (cold[1], restarted[1]) == (0, 2992)
    assert restarted[2] < cold[2] / 3, (restarted[2], cold[2])
