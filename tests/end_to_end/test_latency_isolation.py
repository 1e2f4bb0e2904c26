"""What one client sends holds up nobody else: streams go on with the tokens that they have alone, probes answered."""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from benchmarks.scripted_serve import next_token
from tests.end_to_end.test_many_streams import scripted

PATIENCE_S = 1.0
"""Most that a stream or a probe may wait on a machine where everything else is busy, too. What is sent here took up to
three seconds of the event loop before bodies were weighed and texts bounded."""
MIB = 2**20


def enum_schema(size: int) -> dict[str, Any]:
    """A schema whose compilation takes long."""
    values = [f"value number {number}" for number in range(size)]
    schema = {"type": "object", "properties": {"a": {"enum": values}}, "required": ["a"], "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": "big", "schema": schema}}


MESSAGE = {"role": "user", "content": "a"}
FRAMES = {
    "type": "video_url",
    "video_url": {"url": "data:video/jpeg;base64," + ",".join(["/9j/4AAQSkZJRg=="] * 10_000)},
}


def hostile() -> dict[str, tuple[str, dict[str, Any], set[int]]]:
    """Bodies that take long, and the statuses that they may get. Made when they are sent: they are large."""
    shaped = {"messages": [MESSAGE], "response_format": enum_schema(5_000)}
    return {
        "text of 15 MiB": ("/v1/completions", {"prompt": "many words, all alike; " * (15 * MIB // 23)}, {400}),
        "a long text": ("/v1/completions", {"prompt": "many words " * (MIB // 22), "truncate_prompt_tokens": 9}, {200}),
        "five million ids": ("/v1/completions", {"prompt": [1] * 5_000_000}, {413}),
        "three million lists": ("/v1/completions", {"prompt": "x", "metadata": {"a": [[]] * 3_000_000}}, {413}),
        "300,000 messages": ("/v1/chat/completions", {"messages": [MESSAGE] * 300_000}, {413}),
        "5,000 messages": ("/v1/chat/completions", {"messages": [MESSAGE] * 5_000}, {400}),
        "ten thousand frames": ("/v1/chat/completions", {"messages": [{"role": "user", "content": [FRAMES]}]}, {400}),
        "an enum of 5,000": ("/v1/chat/completions", shaped, {400}),
    }


class ControlStream:
    """A stream that is read all the time, and the longest time between two of its parts."""

    def __init__(self, url: str, num_tokens: int) -> None:
        self.ids: list[int] = []
        self.longest_gap_s = 0.0
        self._url, self._num_tokens = url, num_tokens
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def _read(self) -> None:
        body = {"prompt": [20], "max_tokens": self._num_tokens, "stream": True, "return_token_ids": True}
        last = None
        with httpx.stream("POST", f"{self._url}/v1/completions", json=body, timeout=60) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    now = time.monotonic()
                    self.longest_gap_s = max(self.longest_gap_s, 0.0 if last is None else now - last)
                    last = now
                    self.ids += json.loads(line.removeprefix("data: "))["choices"][0]["token_ids"]
                    self._begun.set()

    def __enter__(self) -> "ControlStream":
        self._thread.start()
        assert self._begun.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def url(tiny_file: str) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCTAVO_SCRIPTED_STEP_S", "0.01")
        with scripted(tiny_file, "--max-model-len", "2000") as made:
            yield made


def send(url: str, path: str, content: bytes) -> int:
    """The status of the answer."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=120)
    try:
        connection.request("POST", path, content, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def probed_s(url: str, end: threading.Event) -> float:
    """Probes until the end; the longest answer's time."""
    longest_s = 0.0
    with httpx.Client(base_url=url, timeout=60) as client:
        while not end.wait(0.02):
            begin = time.monotonic()
            assert client.get("/health").status_code == 200
            longest_s = max(longest_s, time.monotonic() - begin)
    return longest_s


def test_hostile_bodies_hold_up_nobody(url: str) -> None:
    bodies = {name: (path, json.dumps(body).encode(), fits) for name, (path, body, fits) in hostile().items()}
    end, probes = threading.Event(), [0.0]
    prober = threading.Thread(target=lambda: probes.append(probed_s(url, end)))
    with ControlStream(url, 700) as control:
        prober.start()
        statuses: dict[str, int] = {}
        senders = [
            threading.Thread(
                target=lambda name=name, path=path, body=body: statuses.update({name: send(url, path, body)})
            )
            for name, (path, body, _) in bodies.items()
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(120)
        end.set()
        prober.join(60)
    assert statuses.keys() == bodies.keys()
    assert not {name: status for name, status in statuses.items() if status not in bodies[name][2]}, statuses
    assert control.ids == [next_token([20], position, 512) for position in range(700)]
    assert control.longest_gap_s < PATIENCE_S
    assert max(probes) < PATIENCE_S
