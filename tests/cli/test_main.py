"""The program as users start it: exit codes, one-line errors, speed of --help."""

import json
import logging
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from octavo import LLM, SamplingParams
from octavo.cli.main import main
from octavo.execution.loader.tiny.write import write_tiny_model

RUN = "from octavo.cli.main import main; main()"
COMMANDS = [
    "chat",
    "complete",
    "serve",
    "run-batch",
    "models",
    "pull",
    "quantize",
    "doctor",
    "ledger",
    "explain",
    "bench throughput",
    "bench latency",
    "bench serve",
    "bench startup",
    "key new",
    "key hash",
]


def octavo(*arguments: str, cache: Path | None = None, given: str = "") -> subprocess.CompletedProcess[str]:
    """Runs `octavo` in a process of its own."""
    environment = os.environ | ({"OCTAVO_CACHE": str(cache)} if cache else {})
    command = [sys.executable, "-c", RUN, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, input=given, env=environment, check=False, timeout=120
    )


@dataclass
class Here:
    """Runs `octavo` in this process, which is ten times as fast; for what ends before anything is loaded."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
        self.monkeypatch.setattr(sys, "argv", ["octavo", *arguments])
        if cache is not None:
            self.monkeypatch.setenv("OCTAVO_CACHE", str(cache))
        with pytest.raises(SystemExit) as ended:
            main()
        told = self.capsys.readouterr()
        return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), told.out, told.err)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Here]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield Here(monkeypatch, capsys)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_has_examples(here: Here, command: str) -> None:
    done = here(*command.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert "Examples:" in done.stdout
    assert f"octavo {command}" in done.stdout
    assert "--config FILE.yaml" in done.stdout


def test_help_lists_the_commands_and_is_quick() -> None:
    octavo("--help")  # fills the byte code cache
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = octavo("--help")
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    assert done.returncode == 0
    for command in COMMANDS:
        assert command.split()[0] in done.stdout
    assert used < 1.0, f"--help took {used:.2f} s of processor time"


def test_help_imports_nothing_heavy() -> None:
    heavy = ("numpy", "starlette", "uvicorn", "zmq", "tokenizers", "rich", "torch", "octavo._native", "octavo.engine")
    code = f"import sys, octavo.cli.main; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version() -> None:
    done = octavo("--version")
    assert done.stdout.startswith("octavo ")
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "no-such-model", "--port", "0"], "unknown model 'no-such-model'"),
        (["serve", "--port", "70000"], "--port=70000: must be in [0, 65535]"),
        (["serve", "--port", "0", "--block-size", "7"], "--block-size=7: must be a power of two"),
        (["serve", "--port", "0", "--block-size", "1099511627776"], "must be a power of two up to 65536"),
        (["serve", "--port", "0", "--max-num-batched-tokens", "1000000000000"], "must be in [1, 16777216]"),
        (["serve", "--port", "0", "--seed", "-1"], "--seed=-1: must be in [0, 2^63 - 1]"),
        (["serve", "--port", "0", "--served-model-name", ""], "must not hold an empty name"),
        (["serve", "--port", "0", "x" * 5000], "unknown model 'xxx"),
        (["serve", "--port", "0", "--host", "no.such.host.invalid"], "--host='no.such.host.invalid'"),
        (["serve", "--config", "missing.yaml"], "--config='missing.yaml': cannot be read"),
        (["complete", "x", "-m", "./missing.gguf"], "missing.gguf"),
        (["complete", "x", "--threads", "0"], "--threads=0: must be in [1, 256]"),
        (["chat", "x", "--temperature", "-1"], "--temperature=-1.0: must be a number in [0, 100]"),
        (["serve", "--kv-disk-size", "3GiB"], "--kv-disk-size=3221225472: has no effect without --kv-disk-path"),
        (["serve", "--kv-disk-size-bytes=3GiB"], "--kv-disk-size-bytes=3221225472: has no"),
        (["serve", "--num-gpu-blocks-override", "1"], "--num-gpu-blocks-override=1: must be at least 2"),
        (["serve", "--ssl-keyfile", "x.pem"], "--ssl-keyfile='x.pem': has no effect without --ssl-certfile"),
        (["serve", "--api-key-file", "none.yaml"], "--api-key-file='none.yaml': cannot be read"),
        (["serve", "--ssl-certfile", "none.pem"], "--ssl-certfile='none.pem': cannot be read"),
        (["serve", "--port", "0", "--speculation", "auto:3"], "--speculation='auto:3': must be one of off, auto, "),
        (["serve", "--port", "0", "--speculation", "foo:bar"], "--speculation='foo:bar': must be one of off, auto, "),
        (["serve", "--api-server-count", "0"], "--api-server-count=0: must be in [1, 64]; one process is enough for"),
        (["run-batch", "-i", "none.jsonl", "-o", "o.jsonl"], "'none.jsonl': cannot be read"),
        (["serve", "--tempreture", "1"], "no such option --tempreture"),
        (["serve", "--kv-cache-memory", "1"], "; did you mean --kv-cache-memory-bytes? (`"),
        (["serve", "x", "--gpu-memory-utilization", "0.9"], "; KV memory is given in bytes, with --kv-"),
        (["serve", "--model", "x"], "--model; the model stands without an option: octavo serve MODEL (`"),
        (["serve", "--port", "x"], "Invalid value for '--port': must be a number (integer)"),
        (["serve", "--kv-cache-dtype", "fp7"], "'--kv-cache-dtype': 'fp7' is not one of"),
        (["serv"], "Did you mean 'serve'?"),
        (["serve", "--kv-cache-memory-bytes", "lots"], "'lots' is no size; write it like 2GiB"),
        (["pull", "no-such-model"], "unknown model 'no-such-model'"),
        (["bench", "throughput", "-m", "no-such-model"], "unknown model 'no-such-model'"),
        (["bench", "throughput", "--json", "no/x.json"], "--json='no/x.json': there is no folder no; choose a file"),
        (["bench", "latency", "--json", "no/x.json"], "--json='no/x.json': there is no folder no; choose a file"),
        (["bench", "startup", "--json", "no/x.json"], "--json='no/x.json': there is no folder no; choose a file"),
        (["bench", "serve", "--json", "/"], "--json='/': is a folder; choose a file"),
        (["bench", "serve", "--tokenizer", "no-such"], "--tokenizer='no-such': unknown model 'no-such'"),
        (["bench", "serve", "--extra-body", "{"], """'{' is no JSON object; write it like '{"top_p": 0.9}'"""),
        (["serve", "--speculative-config", "{"], """'{' is no JSON object; write it like '{"method": "ngram"}'"""),
        (["complete", "x", "--profile", "traces"], "--profile='traces': folders are for `octavo serve`, which"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(here: Here, tmp_path: Path, arguments: list[str], message: str) -> None:
    done = here(*arguments, cache=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("octavo: ")
    assert message in line


def test_a_mistake_in_a_process_of_its_own(tmp_path: Path) -> None:
    done = octavo("serve", "--port", "70000", cache=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "octavo: --port=70000: must be in [0, 65535]\n"


def test_a_port_in_use_is_told_before_any_model_is_loaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = octavo("serve", "--port", str(port), cache=tmp_path)
    assert done.returncode == 2
    fix = "another program listens there; choose another with --port, or --port 0 for any free one"
    assert done.stderr == f"octavo: --port={port}: {fix}\n"


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(b"not a model at all")
    done = octavo("complete", "x", "-m", str(file), cache=tmp_path)
    assert done.returncode == 2
    assert str(file) in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_models_of_an_empty_cache(tmp_path: Path) -> None:
    done = octavo("models", cache=tmp_path)
    assert done.returncode == 0
    assert "smollm2-135m" in done.stdout
    assert "not here" in done.stdout
    assert "cached" not in done.stdout


@pytest.mark.parametrize("command", ["chat", "complete"])
def test_unknown_flags_suggest_help(here: Here, command: str) -> None:
    done = here(command, "--tempreture", "1")
    assert done.returncode == 2
    assert "--tempreture" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_is_no_internal_error(tmp_path: Path, closed: str) -> None:
    """The command fails for want of a question, and says so where it can."""
    command = f'exec "$0" -c "{RUN}" chat -m ./absent.gguf {closed}'
    done = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "internal error" not in done.stderr
    assert ("is empty; ask something" in done.stderr) == (closed != "2>&-")


def test_a_full_disk_is_named(tiny_model: str) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        command = [sys.executable, "-c", RUN, "complete", "x", "-m", tiny_model, "--max-tokens", "3"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "octavo: output: No space left on device\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_narrow_terminal_and_locale_keep_a_text_usable(
    tiny_model: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    done = octavo("complete", "naïve 世界", "-m", tiny_model, "--max-tokens", "64", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["completion_tokens"] == 64
    with LLM(tiny_model) as llm:
        whole = llm.generate("naïve 世界", SamplingParams(temperature=0, max_tokens=64))[0]
    assert answer["token_ids"] == list(whole.outputs[0].token_ids)


@pytest.mark.parametrize("arguments", [["complete", b"caf\xe9"], ["chat", b"caf\xe9"], ["chat"]])
def test_a_prompt_in_another_encoding_is_refused(tiny_model: str, arguments: list[str | bytes]) -> None:
    command = [sys.executable, "-c", RUN, *arguments, "-m", tiny_model]
    done = subprocess.run(command, input=b"caf\xe9", capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"octavo: prompt=b'\\xe9': byte 3 is not UTF-8")


def test_a_draft_model_that_cannot_be_had_is_told_before_a_model_is_loaded(here: Here, tmp_path: Path) -> None:
    model = str(write_tiny_model(tmp_path / "tiny.gguf"))
    done = here("serve", model, "--port", "0", "--speculation", "draft:no-such-model", cache=tmp_path / "cache")
    assert done.returncode == 2
    assert "octavo: --speculation='draft:no-such-model': unknown model 'no-such-model'" in done.stderr
