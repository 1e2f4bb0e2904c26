"""How a server ends: signals, with twenty streams open; an engine that dies or hangs; and what its log says."""

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.end_to_end.test_serve_process import Process, serve
from tests.server.conftest import wait_until

NUM_STREAMS = 20
LONG: dict[str, Any] = {"max_tokens": 300, "ignore_eos": True, "temperature": 0, "stream": True}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": LONG | {"prompt": "x"},
    "/v1/chat/completions": LONG | {"messages": [{"role": "user", "content": "x"}]},
}
SLOW = ("--executor", "reference", "--max-num-seqs", "32")


class Stream:
    """One open stream, read in a thread of its own."""

    def __init__(self, url: str, path: str, headers: dict[str, str] | None = None) -> None:
        self.events: list[str] = []
        self.status = 0
        self.begun = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(url + path, BODIES[path], headers))
        self._thread.start()

    def _read(self, url: str, body: dict[str, Any], headers: dict[str, str] | None) -> None:
        with httpx.stream("POST", url, json=body, timeout=60, headers=headers) as answer:
            self.status = answer.status_code
            for line in answer.iter_lines():
                if line:
                    self.events.append(line.removeprefix("data: "))
                    self.begun.set()
        self.begun.set()

    def end(self) -> str:
        """What it ended with: a finish reason, or the code of an error."""
        self._thread.join(60)
        assert not self._thread.is_alive(), "a stream hangs"
        last = json.loads(self.events[-2] if self.events[-1] == "[DONE]" else self.events[-1])
        if "error" in last:
            return str(last["error"]["code"])
        return str(last["choices"][0]["finish_reason"])


def open_streams(process: Process, headers: dict[str, str] | None = None) -> list[Stream]:
    paths = list(BODIES)
    streams = [Stream(process.url, paths[i % len(paths)], headers) for i in range(NUM_STREAMS)]
    for stream in streams:
        assert stream.begun.wait(60)
    return streams


def test_sigterm_lets_twenty_streams_of_both_apis_end(tiny_file: str) -> None:
    with serve(tiny_file, *SLOW) as process:
        streams = open_streams(process)
        process.popen.send_signal(signal.SIGTERM)
        assert {stream.end() for stream in streams} == {"length"}
        code, errors = process.end()
        assert code == 0
        assert "draining: 20 requests have up to 30 s to end; a second signal ends them at once" in errors
        assert len(errors.splitlines()) == 1, errors


@pytest.mark.parametrize("first", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_second_signal_ends_them_at_once_and_says_so(tiny_file: str, first: signal.Signals) -> None:
    with serve(tiny_file, *SLOW) as process:
        streams = open_streams(process)
        process.popen.send_signal(first)
        wait_until(lambda: httpx.get(f"{process.url}/ready").status_code == 503, "it drains")
        process.popen.send_signal(signal.SIGINT)
        assert {stream.end() for stream in streams} == {"shutting_down"}
        code, errors = process.end()
        assert code == 0
        told = [line.split("http_server: ")[1] for line in errors.splitlines()]
        assert (
            told[0].startswith("draining: 20 requests") and told[1] == "told again to stop: 20 requests are ended now"
        )


@pytest.mark.slow
def test_streams_that_take_too_long_get_an_error(tiny_file: str) -> None:
    with serve(tiny_file, *SLOW, "--shutdown-timeout", "0.1") as process:
        streams = open_streams(process)
        process.popen.send_signal(signal.SIGTERM)
        assert {stream.end() for stream in streams} == {"shutting_down"}
        code, errors = process.end()
        assert code == 0 and "the time is up: 20 requests are ended now" in errors


def killed(core: psutil.Process) -> None:
    core.kill()


def stopped(core: psutil.Process) -> None:
    core.suspend()


@pytest.mark.parametrize(
    ("mistreat", "says"),
    [(killed, "exit code -9"), pytest.param(stopped, "it has not answered for 1 s", marks=pytest.mark.slow)],
)
def test_every_stream_of_a_dead_engine_is_told(
    tiny_file: str, mistreat: Callable[[psutil.Process], None], says: str
) -> None:
    with serve(tiny_file, *SLOW, "--engine-timeout", "1") as process:
        streams = open_streams(process)
        mistreat(process.core())
        wait_until(lambda: httpx.get(f"{process.url}/health").status_code == 503, "it is known to be dead")
        assert httpx.get(f"{process.url}/ready").status_code == 503
        assert {stream.end() for stream in streams} == {"engine_dead"}
        code, errors = process.end()
        assert code == 1
        assert "the engine died: " in errors and says in errors


def test_the_log_in_json_is_json_alone_and_holds_nothing_secret(tiny_file: str) -> None:
    flags = ("--log-format", "json", "--log-level", "debug", "--access-log", "--api-key", "sk-very-secret")
    with serve(tiny_file, *flags) as process:
        headers = {"Authorization": "Bearer sk-very-secret", "X-Request-Id": "mine"}
        body = {"prompt": "a private matter", "max_tokens": 7, "ignore_eos": True, "n": 2}
        answer = httpx.post(f"{process.url}/v1/completions", json=body, headers=headers, timeout=60)
        process.core().kill()
        code, errors = process.end()
    assert code == 1
    entries = [json.loads(line) for line in errors.splitlines()]
    assert "secret" not in errors and "private" not in errors
    assert {"time", "level", "logger", "process", "pid", "message"} <= set(entries[0])
    (access,) = [entry for entry in entries if entry["logger"] == "octavo.access"]
    usage = answer.json()["usage"]
    assert (access["status"], access["request_id"], access["finish_reasons"]) == (200, "mine", "length:2")
    assert access["prompt_tokens"] == usage["prompt_tokens"]
    assert access["output_tokens"] == usage["completion_tokens"] == 14
    assert [entry["level"] for entry in entries if "the engine died" in entry["message"]] == ["error"]


@pytest.mark.slow
def test_embeddings_are_in_the_access_log(tiny_file: str) -> None:
    with serve(tiny_file, "--log-format", "json", "--access-log") as process:
        answer = httpx.post(f"{process.url}/v1/embeddings", json={"input": ["one", "two words"]}, timeout=60)
        process.popen.send_signal(signal.SIGTERM)
        code, errors = process.end()
    assert code == 0
    (access,) = [json.loads(line) for line in errors.splitlines()]
    assert access["prompt_tokens"] == answer.json()["usage"]["prompt_tokens"]
    assert (access["output_tokens"], access["status"]) == (0, 200)


def test_a_signal_during_a_pause_leaves_nobody_waiting(tiny_file: str) -> None:
    with serve(tiny_file, *SLOW, "--shutdown-timeout", "0.2", "--admin-key", "root", "--open-metrics") as process:
        admin = {"Authorization": "Bearer root"}
        with httpx.Client(base_url=process.url, timeout=60) as client:
            assert client.post("/admin/pause", json={"mode": "keep"}, headers=admin).status_code == 200
            streams = [Stream(process.url, path) for path in BODIES]
            wait_until(lambda: client.get("/load").json()["num_waiting"] == 2, "they wait")
            assert client.get("/health").status_code == 200
            process.popen.send_signal(signal.SIGTERM)
        for stream in streams:
            stream.begun.wait(60)
            assert stream.status == 503
        code, errors = process.end()
        assert code == 0 and "the time is up: 2 requests are ended now" in errors


@pytest.mark.parametrize(("flags", "warns"), [((), False), (("--host", "0.0.0.0"), True)])
def test_a_server_that_others_reach_without_a_key_says_so(tiny_file: str, flags: tuple[str, ...], warns: bool) -> None:
    with serve(tiny_file, "--log-format", "json", *flags) as process:
        process.popen.send_signal(signal.SIGTERM)
        code, errors = process.end()
    assert code == 0
    told = [json.loads(line)["message"] for line in errors.splitlines()]
    assert [message.startswith("reachable from other machines") for message in told] == [True] * warns


@pytest.mark.slow
def test_the_engine_process_speaks_the_same_way(tiny_file: str, tmp_path: Path) -> None:
    """Here of a folder that another server has taken."""
    flags = ("--kv-disk-path", str(tmp_path), "--kv-disk-size", "1MiB", "--log-format", "json")
    with serve(tiny_file, *flags) as first, serve(tiny_file, *flags) as second:
        for process in (second, first):
            process.popen.send_signal(signal.SIGTERM)
        (_, told), (_, quiet) = second.end(), first.end()
    (entry,) = [json.loads(line) for line in told.splitlines()]
    assert quiet == "" and (entry["process"], entry["level"]) == ("core", "warning")
    assert entry["message"].startswith("KV blocks are not kept on disk, in ")
