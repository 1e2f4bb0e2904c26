"""Speculation changes nothing that a client sees: over HTTP, streamed or whole, with guesses of every kind, through
several API processes, beside clients that leave, in pauses."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from octavo import AsyncLLM
from octavo.engine.build import as_they_are
from octavo.engine.speculation import PROPOSERS
from tests.equality.conftest import COMMON, TinyBaseline
from tests.equality.core_thread import start_disturbed
from tests.equality.faults import Fault
from tests.equality.guessers import Guesser, Oracle
from tests.equality.http import ask_all, leave_early, serving
from tests.equality.transcript import assert_same
from tests.equality.workload import shuffled
from tests.server.running import running_server

ADMIN = {"Authorization": "Bearer of-the-operator"}
LOOK_UP = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 1}'
PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"


def figures(url: str) -> dict[str, float]:
    """Counters of speculation, and the sum of what is told by position."""
    text = httpx.get(f"{url}/metrics").text
    names = {
        "drafts": "vllm:spec_decode_num_drafts_total",
        "tokens": "vllm:spec_decode_num_draft_tokens_total",
        "accepted": "vllm:spec_decode_num_accepted_tokens_total",
        "by position": PER_POSITION,
        "saved": "octavo:engine_saved_steps_total",
        "wasted": "octavo:engine_wasted_draft_tokens_total",
    }
    found = {key: re.findall(rf"^{name}{{.*}} (\S+)$", text, re.MULTILINE) for key, name in names.items()}
    return {key: sum(map(float, values)) for key, values in found.items()}


def check_figures(url: str, *, least_accepted: int, least_wasted: int) -> None:
    seen = figures(url)
    assert seen["accepted"] >= max(least_accepted, seen["saved"]) and seen["wasted"] >= least_wasted
    assert seen["tokens"] == seen["saved"] + seen["wasted"] and seen["by position"] == seen["accepted"]
    assert seen["tokens"] >= seen["drafts"] > 0


@contextmanager
def guessing_server(model: str, name: str, **fields: object) -> Iterator[str]:
    """A server whose core is in this process, so that a test may be who guesses."""

    async def start() -> AsyncLLM:
        return await start_disturbed(
            model, {**COMMON, **fields, "speculation": name, "num_speculative_tokens": 5}, Fault(), as_they_are
        )

    with running_server(start, stop_engine=AsyncLLM.shutdown) as running:
        yield running.url


@pytest.mark.parametrize(("guesser", "accepted", "wasted"), [("right", 700, 0), ("wrong", 0, 2000)])
def test_guesses_that_are_always_right_or_always_wrong(
    tiny_baseline: TinyBaseline, monkeypatch: pytest.MonkeyPatch, guesser: str, accepted: int, wasted: int
) -> None:
    baseline = tiny_baseline("llama")
    guess = getattr(Oracle(baseline.answers.values()), guesser)
    monkeypatch.setitem(PROPOSERS, guesser, lambda _: Guesser(guess))
    ahead = guesser == "right"
    with guessing_server(baseline.model, guesser, async_scheduling=ahead, max_num_batched_tokens=100) as url:
        for stream in (False, True):
            assert_same(baseline.seen_over_http, ask_all(url, shuffled(baseline.workload), stream=stream))
        check_figures(url, least_accepted=accepted, least_wasted=wasted)


class Pauses:
    """Stops the engine again and again, requests standing still where they are."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.count = 0

    def _run(self) -> None:
        with httpx.Client(base_url=self._url, headers=ADMIN, timeout=60) as operator:
            while not self._over.wait(0.02):
                assert operator.post("/admin/pause", json={"mode": "keep"}).status_code == 200
                assert operator.post("/admin/resume").status_code == 200
                self.count += 1

    def __enter__(self) -> "Pauses":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        (
            "qwen2",
            {
                "speculation": "suffix",
                "num_speculative_tokens": 5,
                "api_server_count": 2,
                "max_num_batched_tokens": 100,
            },
        ),
        ("gemma3", {"speculative_config": LOOK_UP, "async_scheduling": True}),
        ("llama", {}),
    ],
    ids=["suffix, two API processes", "ngram, planned a step ahead", "the default"],
)
def test_a_server_process(tiny_baseline: TinyBaseline, tmp_path: Path, family: str, fields: dict[str, object]) -> None:
    """Asked for the second time, `suffix` has seen the answers. Those of the default hang on times."""
    baseline = tiny_baseline(family)
    with serving(baseline.model, {**baseline.fields, **fields, "admin_key": "of-the-operator"}, tmp_path) as url:
        assert_same(baseline.seen_over_http, ask_all(url, baseline.workload, stream=False))
        leave_early(url, tuple(request for request in baseline.workload if len(request.prompt) < 50))
        with Pauses(url) as pauses:
            assert_same(baseline.seen_over_http, ask_all(url, shuffled(baseline.workload), stream=True))
        assert pauses.count > 0
        if fields:
            check_figures(url, least_accepted=200 if family == "qwen2" else 50, least_wasted=50)
