"""A stream that goes on while a server is mistreated: its tokens must be the same each time."""

import threading
from types import TracebackType
from typing import Any

import httpx
import msgspec

BODIES: tuple[dict[str, Any], ...] = (
    {"prompt": "the cat sat on", "max_tokens": 24, "temperature": 0, "ignore_eos": True},
    {"prompt": "the dog ran to", "max_tokens": 24, "temperature": 1, "seed": 7, "ignore_eos": True, "n": 2},
)
PAUSE_S = 0.05
"""Between two answers: without it, the control takes most of the server's time."""


class ControlStream:
    """Asks for the same answers again and again, as long as the block runs."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=120)
        self.expected = [self._answer(body) for body in BODIES]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control stream")
        self.num_answers = 0
        self.problems: list[str] = []

    def __enter__(self) -> "ControlStream":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._client.close()

    def wait_for_a_problem(self) -> None:
        """Returns when the stream has ended by itself."""
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            for body, expected in zip(BODIES, self.expected, strict=True):
                try:
                    answer = self._answer(body)
                except Exception as error:
                    self.problems.append(f"{body['prompt']!r}: {error!r}")
                    return
                if answer != expected:
                    self.problems.append(f"{body['prompt']!r}: {answer} is not {expected}")
                    return
                self.num_answers += 1
                self._stop.wait(PAUSE_S)

    def _answer(self, body: dict[str, Any]) -> dict[int, list[int]]:
        """Choice -> token ids."""
        token_ids: dict[int, list[int]] = {}
        asked = body | {"stream": True, "return_token_ids": True}
        with self._client.stream("POST", "/v1/completions", json=asked) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    chunk = msgspec.json.decode(line.removeprefix("data: "))
                    for choice in chunk["choices"]:
                        token_ids.setdefault(choice["index"], []).extend(choice["token_ids"])
        if len(token_ids) != body.get("n", 1) or any(len(ids) != body["max_tokens"] for ids in token_ids.values()):
            raise RuntimeError(f"not the whole answer: {token_ids}")
        return token_ids
