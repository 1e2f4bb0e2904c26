"""A real Prometheus scrapes a real server of two processes. Skipped where it is not installed (Debian package
`prometheus`)."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.end_to_end.test_dashboards import FILES, FLAGS, load, panels
from tests.end_to_end.test_serve_process import Process, serve

PATIENCE_S = 60.0
PAUSE_S = 0.05
INTERVAL = "200ms"


def found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed (Debian package prometheus)")
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Prometheus:
    """Its HTTP API."""

    def __init__(self, url: str, popen: "subprocess.Popen[bytes]", log: Path) -> None:
        self._http = httpx.Client(base_url=url, timeout=10)
        self._popen = popen
        self._log = log

    def query(self, expression: str) -> list[dict[str, Any]]:
        """An instant vector; empty as long as nothing is known, Prometheus itself included."""
        assert self._popen.poll() is None, self._log.read_text()
        try:
            answer = self._http.get("/api/v1/query", params={"query": expression})
        except httpx.TransportError:  # it is starting
            return []
        if answer.status_code == 503:
            return []
        assert answer.status_code == 200 and answer.json()["status"] == "success", (expression, answer.text)
        result: list[dict[str, Any]] = answer.json()["data"]["result"]
        return result

    def wait_for(self, expression: str) -> list[dict[str, Any]]:
        """The vector, once there is one."""
        deadline = time.monotonic() + PATIENCE_S
        while not (vector := self.query(expression)):
            if time.monotonic() > deadline:
                pytest.fail(f"after {PATIENCE_S} s still nothing of {expression}:\n{self._log.read_text()[-2000:]}")
            time.sleep(PAUSE_S)
        return vector

    def value(self, expression: str) -> float:
        """Of the one sample that there is, once there is one."""
        (sample,) = self.wait_for(expression)
        return float(sample["value"][1])

    def close(self) -> None:
        """The connection."""
        self._http.close()


@contextmanager
def prometheus(target: str, folder: Path) -> Iterator[Prometheus]:
    """A process of its own that scrapes one server."""
    address = f"127.0.0.1:{free_port()}"
    job = {"job_name": "octavo", "scrape_interval": INTERVAL, "static_configs": [{"targets": [target]}]}
    config = folder / "prometheus.yml"
    config.write_text(json.dumps({"global": {"scrape_timeout": INTERVAL}, "scrape_configs": [job]}))  # JSON is YAML
    command = [
        found("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    log = folder / "log"
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as popen:
        server = Prometheus(f"http://{address}", popen, log)
        try:
            yield server
        finally:
            server.close()
            popen.terminate()
            popen.wait(30)


@pytest.fixture(scope="module")
def served(tiny_file: str) -> Iterator[Process]:
    found("prometheus")
    with serve(tiny_file, *FLAGS, "--api-server-count", "2") as process:
        yield process


def work(url: str) -> int:
    """Some answers; their tokens."""
    body = {"prompt": "again and again", "max_tokens": 20, "ignore_eos": True, "temperature": 0, "n": 2}
    for _ in range(4):
        assert httpx.post(f"{url}/v1/completions", json=body, timeout=60).status_code == 200
    return 4 * 2 * 20


def test_prometheus_scrapes_what_was_done(served: Process, tmp_path: Path) -> None:
    target = served.url.removeprefix("http://")
    with prometheus(target, tmp_path) as server:
        assert server.value(f'up{{job="octavo",instance="{target}"}} == 1') == 1
        before = server.value("vllm:generation_tokens_total")
        num_tokens = work(served.url)
        assert server.value(f"vllm:generation_tokens_total == {before + num_tokens}") == before + num_tokens
        answers = 'vllm:request_success_total{finished_reason="length",model_name="tiny",engine="0"}'
        assert server.value(f"{answers} == {before / 20 + 8}") == before / 20 + 8
        quantile = server.value("histogram_quantile(0.5, sum by (le) (vllm:e2e_request_latency_seconds_bucket))")
        assert 0 < quantile < 60
        assert server.value("octavo:kv_blocks{state='held'} == 0") == 0
        seen_twice = "count_over_time(vllm:num_requests_running[1m]) >= 3"
        assert server.value(seen_twice) >= 3
        for file in FILES:
            for panel in panels(load(file)):
                for asked in panel["targets"]:
                    expression = asked["expr"].replace("$__rate_interval", "1m").replace("$model_name", ".*")
                    server.query(expression.replace("$instance", ".*"))
        gained = server.value("increase(vllm:generation_tokens_total[1m]) > 0")
        assert gained > 0


def test_promtool_finds_no_fault_in_the_text(served: Process) -> None:
    work(served.url)
    text = httpx.get(f"{served.url}/metrics").content
    done = subprocess.run([found("promtool"), "check", "metrics"], input=text, capture_output=True, check=False)
    complaints = [line for line in done.stdout.decode().splitlines() + done.stderr.decode().splitlines() if line]
    assert [line for line in complaints if not line.endswith(COLONS) and line != SUFFIX] == []


COLONS = "metric names should not contain ':'"
SUFFIX = 'vllm:iteration_tokens_total non-counter metrics should not have "_total" suffix'
"""What it says of names that are vLLM's, and of ours, which are made like them."""
