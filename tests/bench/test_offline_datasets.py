"""`bench throughput` and `bench latency` with every data set, on a tiny model: counts are exact."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM
from octavo.bench.datasets import Talk, make_talks
from octavo.bench.latency import measure_latency
from octavo.bench.load.settings import DatasetSettings
from octavo.bench.throughput import measure_throughput
from octavo.execution.loader.tiny.write import write_tiny_model
from tests.bench.load.test_command import octavo
from tests.bench.load.test_every_combination import DATASETS
from tests.real_models import model_path

SMOLLM = "smollm2-135m"
SETTINGS: dict[str, Any] = {"max_num_seqs": 4, "num_kv_blocks": 64, "max_model_len": 200}
WORDS = ("prefix", "multi-turn", "Azure's trace", "Mooncake's trace")
"""Data sets whose prompts are made of a tokenizer's words, of which a random vocabulary has too few."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf"))


def talks_of(data: str, folder: Path, llm: LLM, file: str, **more: Any) -> list[Talk]:
    fields, text = DATASETS[data]
    fields = {name: value for name, value in fields.items() if name not in ("endpoint", "think_s")}
    if text is not None:
        (folder / "data").write_text(text)
        fields["dataset_path"] = str(folder / "data")
    return make_talks(DatasetSettings(**fields | more), llm, file)


@pytest.mark.parametrize("data", [name for name in DATASETS if name not in WORDS])
def test_counts_are_those_of_the_data(file: str, tmp_path: Path, data: str) -> None:
    with LLM(file, threads=1, **SETTINGS) as llm:
        talks = talks_of(data, tmp_path, llm, file)
        figures = measure_throughput(llm, talks)
    check(figures, talks)


@pytest.mark.parametrize("data", WORDS)
def test_made_lengths_are_exact(tmp_path: Path, data: str) -> None:
    model = str(model_path(SMOLLM))
    with LLM(model, threads=2, **SETTINGS) as llm:
        talks = talks_of(data, tmp_path, llm, model)
        figures = measure_throughput(llm, talks)
    check(figures, talks)
    made = {"prefix": [14] * 9, "multi-turn": [6] * 27, "Azure's trace": [*range(3, 12)]}
    assert [len(step.token_ids) for talk in talks for step in talk] == made.get(data, [*range(5, 14)])


def check(figures: dict[str, Any], talks: list[Talk]) -> None:
    """Later requests of a talk have all tokens of those before them, answers included, in their prompts."""
    prompts = outputs = 0
    for talk in talks:
        said = 0
        for step in talk:
            prompts += said + len(step.token_ids)
            outputs += step.output_len
            said += len(step.token_ids) + step.output_len
    count = sum(map(len, talks))
    assert figures["num_prompts"] == count
    assert figures["input_len"] == pytest.approx(prompts / count)
    assert figures["output_len"] == pytest.approx(outputs / count)
    assert figures["output_tokens_per_s"] * figures["elapsed_s"] == pytest.approx(outputs)
    assert figures["total_tokens_per_s"] * figures["elapsed_s"] == pytest.approx(prompts + outputs)
    computed = figures["prefill_tokens_per_s"] * figures["elapsed_s"]
    assert computed == pytest.approx(prompts * (1 - figures["prefix_hit_rate"]))


def test_a_talk_finds_what_it_said_in_the_cache(tmp_path: Path) -> None:
    """Three turns of 32 tokens, answers of 16: the second finds at least 32 of 80 tokens, the third 80 of 128."""
    model = str(model_path(SMOLLM))
    with LLM(model, threads=2, **SETTINGS) as llm:
        talks = talks_of("multi-turn", tmp_path, llm, model, input_len=32, output_len=16, num_prompts=2)
        figures = measure_throughput(llm, talks)
    assert figures["prefix_hit_rate"] >= (32 + 80) / (32 + 80 + 128)


@pytest.mark.parametrize("data", ["sharegpt", "multi-turn of a file", "custom ids"])
def test_latency_takes_them_too(file: str, tmp_path: Path, data: str) -> None:
    with LLM(file, threads=1, **SETTINGS) as llm:
        talks = talks_of(data, tmp_path, llm, file, output_len=4)
        figures = measure_latency(llm, talks, batch_size=3, output_len=4)
    rounds = 2 if data.startswith("multi") else 1
    assert (figures["repeats"], figures["batch_size"], figures["output_len"]) == (2 * rounds, 3, 4)
    assert 0 < figures["decode_step_s"]["median"] < math.inf


def test_on_the_command_line(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = tmp_path / "lines.jsonl", tmp_path / "out.json"
    data.write_text("\n".join(json.dumps({"prompt": [n, 1, 2], "output_len": 2 + n}) for n in range(4)))
    given = ("-m", file, "--dataset", "custom", "--dataset-path", str(data), "--threads", "1", "--json", str(out))
    done = octavo(capsys, monkeypatch, "bench", "throughput", *given, "--num-prompts", "4", "--max-concurrency", "2")
    assert done.code == 0, done.err
    figures = json.loads(out.read_text())
    assert (figures["num_prompts"], figures["input_len"], figures["output_len"]) == (4, 3, 3.5)
    assert figures["config"]["given"]["dataset"] == "custom"
    done = octavo(capsys, monkeypatch, "bench", "latency", *given, "--batch-size", "2", "--repeats", "1")
    assert (done.code, json.loads(out.read_text())["output_len"]) == (0, 128), done.err
    done = octavo(capsys, monkeypatch, "bench", "throughput", *given)
    assert done.code == 2
    assert f"--num-prompts=32: {data} has 4" in done.err
