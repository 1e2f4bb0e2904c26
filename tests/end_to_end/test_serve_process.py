"""`octavo serve` as a process: its ready line, its signals, its exits."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from tests.server.conftest import wait_until

RUN = "from octavo.cli.main import main; main()"
LONG = {"prompt": "x", "max_tokens": 600, "ignore_eos": True, "temperature": 0}
STEADY = ("--speculation", "off")
"""A long answer takes as many steps as it has tokens: there is time to do something meanwhile."""


class Process:
    """A running `octavo serve`."""

    def __init__(self, popen: "subprocess.Popen[str]") -> None:
        self.popen = popen
        line = popen.stdout.readline() if popen.stdout else ""
        if not line.startswith("ready: "):
            popen.wait(timeout=60)
            raise AssertionError(f"no ready line but {line!r}; stderr: {popen.stderr.read() if popen.stderr else ''}")
        self.ready_line = line
        self.url = line.split()[1]

    def core(self) -> psutil.Process:
        """The engine core's process."""
        (child,) = psutil.Process(self.popen.pid).children()
        return child

    def end(self) -> tuple[int, str]:
        """Waits for the end; exit code and stderr."""
        _, errors = self.popen.communicate(timeout=60)
        return self.popen.returncode, errors


@contextmanager
def serve(*arguments: str) -> Iterator[Process]:
    command = [
        sys.executable,
        "-P",
        "-c",
        RUN,
        "serve",
        *arguments,
        "--port",
        "0",
        "--threads",
        "1",
        "--max-model-len",
        "700",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as popen:
        try:
            yield Process(popen)
        finally:
            if popen.poll() is None:
                popen.kill()


def test_sigterm_lets_a_stream_finish_and_ends_with_0(tiny_file: str) -> None:
    with serve(tiny_file, "--served-model-name", "tiny", *STEADY) as process:
        assert re.search(r"  tiny: \d+ threads? \(\w+\), .* weights, KV .* length\), context 700, ", process.ready_line)
        core = process.core()
        lines: list[str] = []
        begun = threading.Event()

        def read() -> None:
            body = LONG | {"stream": True}
            with httpx.stream("POST", f"{process.url}/v1/completions", json=body, timeout=60) as answer:
                for line in answer.iter_lines():
                    lines.append(line)
                    begun.set()

        reader = threading.Thread(target=read)
        reader.start()
        assert begun.wait(30)
        process.popen.send_signal(signal.SIGTERM)
        reader.join(60)
        assert "data: [DONE]" in lines
        last = json.loads([line for line in lines if line][-2].removeprefix("data: "))
        assert last["choices"][0]["finish_reason"] == "length"
        code, told = process.end()
        assert code == 0 and (not told or "draining: 1 requests have up to 30 s to end" in told)
        assert not core.is_running()


def test_sigint_ends_an_idle_server(tiny_file: str) -> None:
    with serve(tiny_file) as process:
        assert httpx.get(f"{process.url}/ready").status_code == 200
        process.popen.send_signal(signal.SIGINT)
        assert process.end() == (0, "")


def test_a_killed_core_is_noticed_told_and_ends_with_1(tiny_file: str) -> None:
    with serve(tiny_file, *STEADY) as process:
        answers: list[httpx.Response] = []

        def ask() -> None:
            answers.append(httpx.post(f"{process.url}/v1/completions", json=LONG, timeout=60))

        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(lambda: httpx.get(f"{process.url}/load").json()["num_running"] == 1, "the request runs")
        process.core().kill()
        asking.join(30)
        assert answers[0].status_code == 503
        assert answers[0].json()["error"]["code"] == "engine_dead"
        for path in ("/health", "/ready"):
            assert httpx.get(process.url + path).status_code == 503
        code, errors = process.end()
        assert code == 1
        assert "the engine died" in errors


@pytest.mark.slow
def test_a_core_that_hangs_is_noticed_told_and_ends_with_1(tiny_file: str) -> None:
    with serve(tiny_file, "--engine-timeout", "1") as process:
        answers: list[httpx.Response] = []

        def ask() -> None:
            answers.append(httpx.post(f"{process.url}/v1/completions", json=LONG, timeout=60))

        core = process.core()
        core.suspend()
        asking = threading.Thread(target=ask)
        asking.start()
        asking.join(30)
        assert answers[0].status_code == 503
        assert answers[0].json()["error"]["code"] == "engine_dead"
        code, errors = process.end()
        assert code == 1
        assert "the engine died: it has not answered for 1 s" in errors
        assert not core.is_running()


def test_a_stopped_core_does_not_stop_the_probes(tiny_file: str) -> None:
    with serve(tiny_file) as process:
        core = process.core()
        core.suspend()
        try:
            assert httpx.get(f"{process.url}/health", timeout=5).status_code in (200, 503)
            metrics = httpx.get(f"{process.url}/metrics", timeout=30)
            assert re.search(r"octavo:engine_up\{.*\} 0.0", metrics.text)
        finally:
            core.resume()
        assert httpx.get(f"{process.url}/load", timeout=30).status_code == 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-model-len", "100000"], "--max-model-len=100000"),
        (["--num-kv-blocks", "3"], "block"),
        (["--chat-template", "/nowhere/x.jinja"], "--chat-template='/nowhere/x.jinja'"),
    ],
)
def test_what_cannot_start_says_why_in_one_line(tiny_file: str, arguments: list[str], message: str) -> None:
    flags = {"--max-model-len": "700"} | dict(zip(arguments[::2], arguments[1::2], strict=True))
    command = [
        sys.executable,
        "-P",
        "-c",
        RUN,
        "serve",
        tiny_file,
        "--port",
        "0",
        *(w for pair in flags.items() for w in pair),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=os.environ | {})
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert message in done.stderr


def test_no_socket_but_the_servers_listens_on_the_network(tiny_file: str) -> None:
    with serve(tiny_file) as process:
        mine = [psutil.Process(process.popen.pid), process.core()]
        listening = [c.laddr for p in mine for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN]
        port = int(process.url.rsplit(":", 1)[1])
        assert [tuple(address) for address in listening] == [("127.0.0.1", port)]


SIGTERM_AT = """
import importlib, os, signal
owner, name = sys.argv.pop(1).rsplit(".", 1)
owner = importlib.import_module(owner)
whole = getattr(owner, name)

def signalled(*arguments, **named):
    result = whole(*arguments, **named) if owner.__name__ == "tempfile" else None
    os.kill(os.getpid(), signal.SIGTERM)
    return whole(*arguments, **named) if result is None else result

setattr(owner, name, signalled)
"""


@pytest.mark.parametrize(
    "place", ["tempfile.mkdtemp", "subprocess.Popen", "octavo.hub.resolve", "octavo.engine.wire.encode_order"]
)
def test_sigterm_early_in_the_start_leaves_nothing_behind(tiny_file: str, tmp_path: Path, place: str) -> None:
    """Sent at the call of a function that the start comes by; it ends as it does later on."""
    program = f"import sys\n{SIGTERM_AT}\n{RUN}"
    command = [sys.executable, "-P", "-c", program, place, "serve", tiny_file, "--port=0"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert not list(tmp_path.iterdir())
