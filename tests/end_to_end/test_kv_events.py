"""A served engine and those who follow its cache: the process, the settings, the example."""

import re
import subprocess
import sys
import time
from pathlib import Path

import httpx

from octavo.router.kv_client import KvEventsClient
from octavo.router.kv_directory import KvDirectory
from tests.end_to_end.test_serve_process import RUN, serve
from tests.engine.following import ANY_PORT, PublishingEngine, poll_until
from tests.scheduling.harness import make_request

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "follow_kv_events.py"
EVENTS = ("--kv-events-endpoint", ANY_PORT, "--kv-events-replay-endpoint", ANY_PORT)


def addresses(ready_line: str) -> tuple[str, str]:
    """Both endpoints, as the ready line names them."""
    match = re.search(r", KV events at (tcp://127\.0\.0\.1:\d+) and (tcp://127\.0\.0\.1:\d+)$", ready_line.strip())
    assert match is not None, ready_line
    return match[1], match[2]


def test_a_served_engine_is_followed(tiny_file: str) -> None:
    with serve(tiny_file, *EVENTS) as process, KvEventsClient(KvDirectory()) as client:
        client.follow("e", *addresses(process.ready_line))
        directory = client.directory
        prompt = [5] * 40
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
        assert httpx.post(f"{process.url}/v1/completions", json=body, timeout=60).status_code == 200
        poll_until(
            client, lambda: directory.is_exact("e", time.monotonic()) and len(directory.names_of("e", prompt)) == 2
        )
        assert directory.longest_prefix("e", directory.names_of("e", prompt)).blocks_by_medium == {"GPU": 2}
        process.popen.terminate()
        assert process.end()[0] == 0


def test_a_port_in_use_ends_the_start_with_the_reason(tiny_file: str) -> None:
    engine = PublishingEngine()
    command = [sys.executable, "-P", "-c", RUN, "serve", tiny_file, "--port", "0"]
    command += ["--kv-events-endpoint", engine.info.endpoint]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"--kv-events-endpoint='{engine.info.endpoint}': is taken by another process; end that one" in done.stderr
    engine.core.close()


def test_the_example_follows_an_engine() -> None:
    engine = PublishingEngine()
    engine.core.add(make_request("a", list(range(20)), max_tokens=1))
    engine.run()
    assert engine.info.replay_endpoint is not None
    assert len(EXAMPLE.read_text().splitlines()) < 40
    command = [sys.executable, str(EXAMPLE), engine.info.endpoint, engine.info.replay_endpoint]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as popen:
        assert popen.stdout is not None
        lines = [popen.stdout.readline().strip()]
        while lines[-1] != "exact: {'GPU': 5}":
            assert popen.poll() is None, lines
            lines.append(popen.stdout.readline().strip())
        popen.terminate()
    assert lines[0].startswith(("waiting", "recovering", "exact"))
    engine.core.close()
