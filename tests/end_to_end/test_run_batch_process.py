"""`octavo run-batch` as a process: the same answers as LLM, its exits, and Ctrl-C."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from tests.end_to_end.conftest import SETTINGS
from tests.server.conftest import wait_until

RUN = "from octavo.cli.main import main; main()"
FLAGS = ["--threads", "1", "--max-model-len", "768", "--num-kv-blocks", "500", "--served-model-name", "tiny"]


def command(model: str, folder: Path, *more: str) -> list[str]:
    files = ["-i", str(folder / "in.jsonl"), "-o", str(folder / "out.jsonl")]
    return [sys.executable, "-P", "-c", RUN, "run-batch", *files, "-m", model, *FLAGS, *more]


def run(model: str, folder: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command(model, folder, *more), capture_output=True, text=True, timeout=120, check=False)


def write(folder: Path, bodies: list[dict[str, Any]], url: str = "/v1/completions") -> None:
    lines = [
        {"custom_id": f"r{number}", "method": "POST", "url": url, "body": body} for number, body in enumerate(bodies)
    ]
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def read(folder: Path) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    return {line["custom_id"]: line["response"] for line in lines}


def test_the_answers_are_those_of_llm(tiny_file: str, tmp_path: Path) -> None:
    prompts = [f"the {number}" for number in range(12)]
    write(tmp_path, [{"prompt": prompt, "max_tokens": 8, "temperature": 0.7, "seed": 5} for prompt in prompts])
    done = run(tiny_file, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "12 answered, 0 failed" in done.stderr
    assert done.stdout == ""
    answers = read(tmp_path)
    with LLM(tiny_file, **SETTINGS) as llm:
        expected = llm.generate(prompts, SamplingParams(temperature=0.7, seed=5, max_tokens=8))
    for number, output in enumerate(expected):
        assert answers[f"r{number}"]["body"]["choices"][0]["text"] == output.outputs[0].text
    again = run(tiny_file, tmp_path)
    assert again.returncode == 0
    assert "nothing to do: 12 answers are there\n" in again.stderr


def test_every_endpoint_of_a_batch(tiny_file: str, tmp_path: Path) -> None:
    lines = [
        {"custom_id": "c", "url": "/v1/completions", "body": {"prompt": "x", "max_tokens": 3}},
        {"custom_id": "e", "url": "/v1/embeddings", "body": {"input": ["x", "y"]}},
        {"custom_id": "r", "url": "/v1/responses", "body": {"input": "x", "max_output_tokens": 3}},
        {"custom_id": "s", "url": "/v1/responses", "body": {"input": "x", "store": True}},
        {"custom_id": "m", "url": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "x"}]}},
    ]
    for line in lines:
        line["method"] = "POST"
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    template = tmp_path / "template.jinja"
    template.write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    done = run(tiny_file, tmp_path, "--chat-template", str(template))
    assert done.returncode == 1, done.stderr
    answers = read(tmp_path)
    assert {name: answer["status_code"] for name, answer in answers.items()} == {
        "c": 200, "e": 200, "r": 200, "s": 400, "m": 200,
    }  # fmt: skip
    assert len(answers["e"]["body"]["data"]) == 2
    assert answers["r"]["body"]["store"] is False
    assert answers["s"]["body"]["error"]["param"] == "store"


def test_errors_end_with_1_and_wrong_files_with_2(tiny_file: str, tmp_path: Path) -> None:
    write(tmp_path, [{"prompt": "x", "max_tokens": 2}, {"prompt": "x", "temperature": -1}])
    done = run(tiny_file, tmp_path)
    assert done.returncode == 1, done.stderr
    assert "1 answered, 1 failed" in done.stderr
    assert read(tmp_path)["r1"]["body"]["error"]["param"] == "temperature"
    done = run(tiny_file, tmp_path)
    assert done.returncode == 1
    told = "nothing to do: 2 answers are there, 1 of them errors; to ask these again delete their lines"
    assert told in done.stderr
    (tmp_path / "in.jsonl").write_text('{"custom_id": "r0"}\n')
    done = run(tiny_file, tmp_path)
    assert done.returncode == 2
    assert "in.jsonl, line 1: line" in done.stderr
    (tmp_path / "in.jsonl").unlink()
    done = run(tiny_file, tmp_path)
    assert done.returncode == 2
    assert (
        "in.jsonl': cannot be read (No such file or directory); give a file that holds a request a line" in done.stderr
    )


def test_settings_come_from_a_file_too(tiny_file: str, tmp_path: Path) -> None:
    write(tmp_path, [{"prompt": "x", "max_tokens": 2, "model": "named"}])
    lines = [f"model: {tiny_file}", f"input: {tmp_path}/in.jsonl", f"output: {tmp_path}/out.jsonl"]
    (tmp_path / "batch.yaml").write_text("\n".join([*lines, "served-model-name: named", "threads: 1"]))
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN, "run-batch", "--config", str(tmp_path / "batch.yaml")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL]
)
def test_stopped_at_any_moment_it_goes_on(tiny_file: str, tmp_path: Path, number: signal.Signals) -> None:
    bodies = [{"prompt": f"{i}", "max_tokens": 400, "ignore_eos": True, "temperature": 0} for i in range(40)]
    write(tmp_path, bodies)
    output, slowly = tmp_path / "out.jsonl", ("--max-concurrency", "4", "--speculation", "off")
    with subprocess.Popen(command(tiny_file, tmp_path, *slowly), stderr=subprocess.DEVNULL) as popen:
        wait_until(lambda: output.exists() and output.stat().st_size > 0, "an answer", timeout_s=60)
        popen.send_signal(number)
        code = popen.wait(timeout=60)
    assert code == {signal.SIGINT: 130}.get(number, -number)
    before = output.read_text()
    whole = {json.loads(line)["custom_id"] for line in before.splitlines(keepends=True) if line.endswith("\n")}
    assert 0 < len(whole) < 40
    done = run(tiny_file, tmp_path)
    assert done.returncode == 0, done.stderr
    assert output.read_text().startswith(before[: before.rfind("\n") + 1])
    assert len(read(tmp_path)) == 40
