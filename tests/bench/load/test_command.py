"""`octavo bench serve` and `octavo bench startup` as users start them, by TCP and by the machine's clock: counts are
exact, times only have an order."""

import asyncio
import json
import os
import re
import signal
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

from octavo.bench.startup import core_phases, measure_startup
from octavo.cli.main import main
from octavo.errors import RequestFailedError
from octavo.execution.loader.tiny.write import write_tiny_model
from tests.bench.load.scripted_server import Beat, Script, ScriptedServer, answer, refusal, whole
from tests.server.fake_engine import FakeEngine
from tests.server.running import running_server


@contextmanager
def served(script: Script, tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, ScriptedServer]]:
    """A scripted server on a port, in a thread of its own."""
    server, ready, loop, port = ScriptedServer(script), threading.Event(), asyncio.new_event_loop(), [0]

    async def run(stop: asyncio.Event) -> None:
        listener = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=tls)
        port[0] = listener.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        listener.close()
        await asyncio.gather(*tasks)

    tasks: list[asyncio.Task[None]] = []

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(loop.create_task(server.serve(reader, writer)))

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(run(stop)))
    thread.start()
    assert ready.wait(30)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port[0]}", server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()


@dataclass
class Done:
    code: int
    out: str
    err: str


def octavo(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Done:
    monkeypatch.setattr(sys, "argv", ["octavo", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr()
    return Done(int(ended.value.code or 0), told.out, told.err)


def at_once(_: int, __: dict[str, Any]) -> list[Beat]:
    return answer(0.0, 0.0, 3)


def test_a_run_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.json"
    with served(at_once) as (url, server):
        done = octavo(
            capsys, monkeypatch, "bench", "serve", "--url", f"{url}/v1", "--num-prompts", "20", "--request-rate", "500",
            "--input-len", "7", "--output-len", "3", "--json", str(out), "--goodput", "ttft:60000", "e2el:60000",
        )  # fmt: skip
    assert done.code == 0, done.err
    assert done.out.startswith("scripted: 20 requests from 0.000 to ")
    assert ": 20 completed, 0 rejected, 0 errored, 0 aborted\n" in done.out
    assert "goodput default [ttft 60000 ms, e2el 60000 ms]: 20 of 20 (100.0 %)" in done.out
    assert "20/20" in done.err
    assert len(server.requests) == 22
    figures = json.loads(out.read_text(), parse_constant=pytest.fail)
    assert (figures["model"], figures["request_rate"], figures["config"]["num_prompts"]) == ("scripted", 500, 20)
    assert figures["measured"]["output_tokens"] == figures["measured"]["asked_output_tokens"] == 60
    for exact, later in (("ttft_from_send_s", "ttft_s"), ("e2el_from_send_s", "e2el_s"), ("ttft_s", "e2el_s")):
        assert 0 < figures["run"][exact]["p50"] <= figures["run"][later]["p50"]
    assert {"hardware", "versions"} == set(figures["client"])


def test_ctrl_c_shows_what_was_counted_by_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the eighth request comes, five are answered; `served` ends when no connection is left."""

    def script(number: int, _: dict[str, Any]) -> list[Beat]:
        if number == 7:
            os.kill(os.getpid(), signal.SIGINT)
        return at_once(number, {}) if number < 5 else answer(0.0, 0.01, 9999)

    out = tmp_path / "out.json"
    with served(script) as (url, server):
        given = ("--url", url, "--num-prompts", "20", "--num-warmups", "0", "--max-concurrency", "3")
        done = octavo(capsys, monkeypatch, "bench", "serve", *given, "--json", str(out))
    assert done.code == 130
    assert done.out.startswith("interrupted: these are figures of what was done by then\nscripted: 8 requests from ")
    assert ": 5 completed, 0 rejected, 0 errored, 3 aborted\n" in done.out and "3 x interrupted" in done.out
    assert "8/20" in done.err and "Traceback" not in done.err
    figures = json.loads(out.read_text())
    assert (figures["interrupted"], figures["run"]["completed"], figures["run"]["output_tokens"]) == (True, 5, 15)
    assert len(server.requests) == 8


def test_the_bar_ends_at_its_end_though_dialogues_end_early(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four dialogues of three turns one is refused at once and one at its second turn: 9 requests, not 12."""
    refused = iter([True, False, False, False, False, True])

    def script(_: int, __: dict[str, Any]) -> list[Beat]:
        return [(0.0, refusal(503, "draining"))] if next(refused, False) else at_once(0, {})

    with served(script) as (url, server):
        given = ("--url", url, "--dataset", "multi-turn", "--num-prompts", "4", "--num-warmups", "0")
        done = octavo(capsys, monkeypatch, "bench", "serve", *given, "--max-concurrency", "1")
    assert (done.code, len(server.requests)) == (0, 9)
    *_, last = re.findall(r"\d+/\d+", done.err)
    assert last == "9/9"


def test_answers_that_are_no_streams(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    body = whole({"choices": [{"text": "abc", "finish_reason": "length"}]})
    with served(lambda *_: [(0.0, body)]) as (url, _):
        done = octavo(capsys, monkeypatch, "bench", "serve", "--url", url, "--no-stream", "--no-progress")
    assert (done.code, done.err) == (0, "")
    assert ": 100 completed, 0 rejected" in done.out and "\nE2EL  " in done.out and "TTFT" not in done.out


def test_secrets_stay_out_of_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.json"
    monkeypatch.setenv("OCTAVO_API_KEY", "very-secret")
    with served(at_once) as (url, server):
        given = ("--url", url, "--header", "X-Key: also-secret", "--num-prompts", "1", "--request-rate", "inf")
        done = octavo(capsys, monkeypatch, "bench", "serve", *given, "--json", str(out), "--no-progress")
    assert (done.code, done.err) == (0, "")
    assert "\r\nAuthorization: Bearer very-secret\r\nX-Key: also-secret\r\n" in server.heads[-1]
    assert "secret" not in out.read_text() + done.out
    assert json.loads(out.read_text(), parse_constant=pytest.fail)["request_rate"] == "inf"


def test_a_server_that_refuses_everything(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with served(lambda *_: [(0.0, refusal(429, "queue full"))]) as (url, _):
        done = octavo(capsys, monkeypatch, "bench", "serve", "--url", url, "--num-prompts", "4", "--no-progress")
    assert done.code == 1
    assert "0 completed, 4 rejected" in done.out
    assert done.err == "octavo: no request was completed; queue full\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--url", "http://127.0.0.1:1"), 1, "http://127.0.0.1:1 cannot be asked: "),
        (("--request-rate", "0"), 2, "--request-rate=0.0: must be above 0"),
        (("--dataset", "trace"), 2, "--dataset='trace': needs its file: --dataset-path"),
        (("--num-prompts", "2", "--time-scale", "2"), 2, "--time-scale=2.0: has no effect: the data set has no times"),
        (("ttft:3",), 2, "unexpected 'ttft:3'; limits follow --goodput"),
        (("--goodput", "ttft:3", "tpot"), 2, "--goodput='ttft:3 tpot': write limits in milliseconds"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    done = octavo(capsys, monkeypatch, "bench", "serve", *arguments, "--no-progress")
    assert (done.code, done.out) == (code, "")
    (line,) = done.err.splitlines()
    assert message in line


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_octavos_own_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    """The stand-in engine says what it likes until it has said enough; counts of client and server are the same."""
    out = tmp_path / "out.json"

    async def fake() -> FakeEngine:
        return FakeEngine()

    with running_server(fake) as running:
        done = octavo(
            capsys, monkeypatch, "bench", "serve", "--url", running.url, "--endpoint", endpoint, "--dataset",
            "multi-turn", "--turns", "2", "--num-prompts", "6", "--max-concurrency", "3", "--input-len", "5",
            "--output-len", "8", "--ignore-eos", "--json", str(out), "--no-progress",
        )  # fmt: skip
    assert done.code == 0, done.out + done.err
    figures = json.loads(out.read_text())["run"]
    assert (figures["requests"], figures["completed"], figures["most_under_way"]) == (12, 12, 3)
    assert figures["output_tokens"] == figures["asked_output_tokens"] == 12 * 8
    assert figures["answers_without_usage"] == 0
    assert figures["prompt_tokens"] > 12 * 5


def test_tls(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates are checked against those that the system trusts."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    given = ("bench", "serve", "--num-prompts", "3", "--request-rate", "inf", "--no-progress", "--url")
    with served(at_once, context) as (url, _):
        distrusted = octavo(capsys, monkeypatch, *given, url)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        trusted = octavo(capsys, monkeypatch, *given, url)
    assert distrusted.code == 1
    assert "CERTIFICATE_VERIFY_FAILED" in distrusted.err
    assert len(distrusted.err.splitlines()) == 1
    assert ": 3 completed, 0 rejected" in trusted.out


def test_phases_of_a_start_are_read_from_its_log() -> None:
    log = "x\n12:00 DEBUG octavo.engine: core started: imports 0.66 s, open 0.06 s\nready: 1.0 s\n"
    assert core_phases(log) == {"core_imports_s": 0.66, "core_open_s": 0.06}
    assert core_phases("nothing") == {}


@pytest.mark.slow
def test_a_start_is_measured_from_outside(tmp_path: Path) -> None:
    figures = measure_startup(str(write_tiny_model(tmp_path / "tiny.gguf")), repeats=1)
    assert 0 < figures["listening_s"]["median"] <= figures["ready_s"]["median"]
    assert figures["core_imports_s"]["median"] < figures["ready_s"]["median"]


@pytest.mark.slow
def test_a_start_that_fails_says_what_the_server_said(tmp_path: Path) -> None:
    with pytest.raises(RequestFailedError, match=r"the server did not get ready .*nothing\.gguf"):
        measure_startup(str(tmp_path / "nothing.gguf"), repeats=1)
