"""Faults of one request, seen over HTTP: its client gets an error, all others get what they get alone."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo import AsyncLLM
from octavo.errors import WorkerLostError
from octavo.execution.protocols import Float32, StepBatch
from tests.equality.conftest import COMMON, TinyBaseline
from tests.equality.core_thread import start_disturbed
from tests.equality.faults import FAULTS, MARK, Disturbed, Fault, SoundExecutor
from tests.equality.http import ask_all, serving
from tests.equality.tiny_models import POISON
from tests.equality.transcript import assert_same
from tests.server.running import running_server

MODEL = "int8 activations"


@contextmanager
def disturbed_server(model: str, fault: Fault, **fields: object) -> Iterator[str]:
    """A server in whose engine a fault happens; gives its address."""

    async def start() -> AsyncLLM:
        return await start_disturbed(model, {**COMMON, **fields}, fault, Disturbed(fault))

    with running_server(start, stop_engine=AsyncLLM.shutdown) as running:
        yield running.url


def ask_for_trouble(url: str, body: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    """The error that a request gets, wherever it comes: with the status, or as the last event of the stream."""
    answer = httpx.post(f"{url}/v1/completions", json={**body, "stream": stream}, timeout=60)
    if not (stream and answer.status_code == 200):
        assert answer.status_code == 500, answer.text
        return dict(answer.json()["error"])
    *events, error, done = answer.text.strip().split("\n\n")
    assert done == "data: [DONE]"
    assert all("choices" in json.loads(event.removeprefix("data: ")) for event in events)
    return dict(json.loads(error.removeprefix("data: "))["error"])


def check_error(error: dict[str, Any]) -> None:
    """In the shape that OpenAI's clients read, without anything of the server's inside."""
    assert (error["type"], error["code"], error["param"]) == ("server_error", "generation_failed", None)
    assert len(error["message"]) > 20
    assert not any(inside in error["message"] for inside in ("Traceback", "/", "octavo."))


STAGES = {
    "prepare": FAULTS["prepare"],
    "kernel": FAULTS["kernel runs out of memory"],
    "NaN": FAULTS["NaN from the start of a step"],
    "sampler": FAULTS["sampler raises when it has drawn"],
    "text": FAULTS["text"],
}


@pytest.mark.parametrize("ahead", [False, True], ids=["", "planned ahead"])
@pytest.mark.parametrize("stage", STAGES)
def test_faults_among_requests(tiny_baseline: TinyBaseline, stage: str, ahead: bool) -> None:
    baseline, fault = tiny_baseline(MODEL, "kernels"), STAGES[stage]
    beginning = [
        token for request in baseline.workload if request.name == "shared beginning" for token in request.prompt
    ]
    body = {"prompt": [*beginning[:70], MARK], "max_tokens": 6, "n": 2}
    if stage == "text":
        body = {"prompt": beginning[:70], "max_tokens": 6, "allowed_token_ids": [MARK]}
    with (
        disturbed_server(baseline.model, fault, async_scheduling=ahead, max_num_batched_tokens=100) as url,
        ThreadPoolExecutor(6) as clients,
    ):
        troubles = [clients.submit(ask_for_trouble, url, body, stream=bool(i % 2)) for i in range(6)]
        for stream in (False, True):
            assert_same(baseline.seen_over_http, ask_all(url, baseline.workload, stream=stream))
        for trouble in troubles:
            check_error(trouble.result(60))
        assert httpx.get(f"{url}/health").status_code == 200


def test_a_fault_in_the_middle_of_a_stream_is_its_last_event(tiny_baseline: TinyBaseline) -> None:
    """The second token is the one without a text: once the first one has been there, the penalty halves it."""
    baseline = tiny_baseline(MODEL, "kernels")
    body = {
        "prompt": [9, 10, 11],
        "max_tokens": 9,
        "temperature": 0,
        "allowed_token_ids": [20, MARK],
        "logit_bias": {"20": 100, str(MARK): 80},
        "repetition_penalty": 2.0,
        "stream": True,
    }
    with disturbed_server(baseline.model, FAULTS["text"]) as url:
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
        assert answer.status_code == 200
        first, error, done = answer.text.strip().split("\n\n")
        assert json.loads(first.removeprefix("data: "))["choices"][0]["text"] and done == "data: [DONE]"
        check_error(json.loads(error.removeprefix("data: "))["error"])


def test_a_server_process_beside_prompts_that_give_nan(tiny_baseline: TinyBaseline, tmp_path: Path) -> None:
    """The same through a core process of its own, with a model of which some tokens are no numbers."""
    baseline = tiny_baseline(MODEL, "kernels")
    fields = {**baseline.fields, "max_num_batched_tokens": 64}
    with serving(baseline.model, fields, tmp_path) as url, ThreadPoolExecutor(4) as clients:
        bodies = [{"prompt": [9] * (20 + 30 * i) + [poison] + [10] * 40} for i in range(2) for poison in POISON]
        troubles = [clients.submit(ask_for_trouble, url, body, stream=i % 2 == 0) for i, body in enumerate(bodies)]
        assert_same(baseline.seen_over_http, ask_all(url, baseline.workload, stream=True))
        for trouble in troubles:
            check_error(trouble.result(60))


class LosesItsWorker(SoundExecutor):
    """What computes is gone as soon as four requests run together."""

    def run(self, batch: StepBatch) -> Float32:
        if len(batch.context_lens) == 4:
            raise WorkerLostError("the worker is gone")
        time.sleep(0.01)  # a step of a model that is not tiny: no request ends before the others have come
        return self.inner.run(batch)


@pytest.mark.parametrize("ahead", [False, True], ids=["", "planned ahead"])
def test_with_its_worker_the_engine_ends_and_every_client_is_told(tiny_baseline: TinyBaseline, ahead: bool) -> None:
    model = tiny_baseline(MODEL, "kernels").model
    with (
        disturbed_server(model, Fault(LosesItsWorker), async_scheduling=ahead) as url,
        httpx.Client(base_url=url, timeout=60) as client,
        ThreadPoolExecutor(4) as askers,
    ):

        def ask(number: int) -> httpx.Response:
            body = {"prompt": [9, 10, 11], "max_tokens": 600, "ignore_eos": True, "stream": number % 2 == 0}
            return client.post("/v1/completions", json=body | {"seed": number})

        for answer in askers.map(ask, range(4)):
            last = answer.text.strip().split("\n\n")[-2] if answer.status_code == 200 else answer.text
            error = json.loads(last.removeprefix("data: "))["error"]
            assert (error["code"], error["type"]) == ("engine_dead", "service_unavailable_error")
            assert answer.status_code in (200, 503)
