"""A stock tool measures the server, and what it reports agrees with what the server counted.

Needs guidellm 0.8 on the PATH, or its program named by $OCTAVO_GUIDELLM; it lives in an environment of its own, for
it brings torch. What was seen, and the command: docs/benchmarking.md.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo import AsyncLLM
from tests.end_to_end.conftest import serving
from tests.real_models import model_path
from tests.server.running import RunningServer

NUM_REQUESTS = 12
NUM_PROMPTS = 4 * NUM_REQUESTS
"""guidellm prepares requests ahead of those that it sends, and stands still when there are no more."""
WORDS = ("alpha", "river", "stone", "window", "garden", "winter", "copper", "silver", "music", "paper", "cloud")
ASKED = {
    "/v1/completions": "max_tokens",
    "/v1/chat/completions": "max_completion_tokens",
    "/v1/responses": "max_output_tokens",
}
"""Path -> what limits the answer there."""
SLACK_S = 0.5
"""How much later than the server a client may see something, on a machine with other work: its own event loop, mostly.
On a quiet one it is 20 ms."""


@pytest.fixture(scope="module")
def guidellm() -> str:
    """The program."""
    program = os.environ.get("OCTAVO_GUIDELLM") or shutil.which("guidellm")
    if program is None:
        pytest.skip("guidellm is neither on the PATH nor named by OCTAVO_GUIDELLM")
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=120).stdout
    if "0.8." not in told:
        pytest.skip(f"its options are those of guidellm 0.8, and this is {told.strip()}")
    return program


@pytest.fixture(scope="module")
def server(guidellm: str) -> Iterator[RunningServer[AsyncLLM]]:
    """SmolLM2; started only if there is somebody to measure it."""
    with serving(str(model_path("smollm2-135m")), served_model_name=("smollm2-135m",)) as running:
        yield running


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """A file of prompts with the lengths of their answers, so that guidellm needs no tokenizer. All begin otherwise."""
    file = tmp_path / "prompts.jsonl"
    rows = [
        {
            "prompt": f"{index}. " + " ".join(WORDS[(index * 7 + at * 5) % len(WORDS)] for at in range(40)),
            "output_tokens_count": 24 + index % 8,
        }
        for index in range(NUM_PROMPTS)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@dataclass(frozen=True)
class Counted:
    """What /metrics says, all labels of a sample together."""

    samples: dict[str, float]

    @classmethod
    def of(cls, server: RunningServer[AsyncLLM]) -> "Counted":
        samples: dict[str, float] = {}
        for line in httpx.get(f"{server.url}/metrics").text.splitlines():
            if line.startswith("vllm:"):
                name, value = line.rsplit(" ", 1)
                name = name.split("{")[0].removeprefix("vllm:")
                samples[name] = samples.get(name, 0.0) + float(value)
        return cls(samples)

    def since(self, before: "Counted") -> dict[str, float]:
        return {name: value - before.samples.get(name, 0.0) for name, value in self.samples.items()}


def measure(program: str, url: str, path: str, profile: str, prompts: Path) -> dict[str, Any]:
    """guidellm's report of one benchmark."""
    report = prompts.with_name("report.json")
    command = [
        *(program, "run", "--disable-console"),
        *("--backend", f"kind=openai_http,target={url},request_format={path}"),
        *("--profile", profile),
        *("--constraint", f"kind=max_requests,count={NUM_REQUESTS}"),
        *("--data", f"kind=json_file,path={prompts}"),
        *("--output", f"kind=json,path={report}"),
    ]
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=280, env=os.environ | {"HF_HUB_OFFLINE": "1"}
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    return dict(benchmark)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "profile"),
    [
        ("/v1/completions", "kind=concurrent,streams=4"),
        ("/v1/chat/completions", "kind=poisson,rate=4"),
        ("/v1/responses", "kind=synchronous"),
    ],
)
def test_guidellm_and_the_server_agree(
    path: str, profile: str, guidellm: str, server: RunningServer[AsyncLLM], prompts: Path
) -> None:
    before = Counted.of(server)
    report = measure(guidellm, server.url, path, profile, prompts)
    counted = Counted.of(server).since(before)
    check_counts(report, counted)
    check_latencies(report, counted)
    for request in report["requests"]["successful"]:
        asked = json.loads(request["request_args"])["body"][ASKED[path]]
        assert request["output_metrics"]["text_tokens"] == asked
        check_request(request, server)


def check_counts(report: dict[str, Any], counted: dict[str, float]) -> None:
    """Exactly equal: requests, tokens, pieces in which they came."""
    metrics, num_output = report["metrics"], total(report, "output_token_count")
    assert metrics["request_totals"] == {
        "successful": NUM_REQUESTS,
        "errored": 0,
        "incomplete": 0,
        "total": NUM_REQUESTS,
    }
    assert counted["request_success_total"] == counted["e2e_request_latency_seconds_count"] == NUM_REQUESTS
    assert num_output == counted["generation_tokens_total"] == counted["request_generation_tokens_sum"]
    num_prompt = total(report, "prompt_token_count")
    assert num_prompt == counted["prompt_tokens_total"] == counted["request_prompt_tokens_sum"]
    assert metrics["inter_token_latency_ms"]["successful"]["count"] == num_output - NUM_REQUESTS
    # A token whose text waits for the next one's comes with it: fewer pieces, not fewer tokens.
    assert counted["inter_token_latency_seconds_count"] == num_output - NUM_REQUESTS


def check_latencies(report: dict[str, Any], counted: dict[str, float]) -> None:
    """The client's times hold the server's, and little more."""
    for theirs, unit, ours in (
        ("time_to_first_token_ms", 1e-3, "time_to_first_token_seconds_sum"),
        ("request_latency", 1.0, "e2e_request_latency_seconds_sum"),
    ):
        assert 0 <= total(report, theirs) * unit - counted[ours] <= NUM_REQUESTS * SLACK_S, theirs
    between = total(report, "inter_token_latency_ms") * 1e-3
    assert between == pytest.approx(counted["inter_token_latency_seconds_sum"], abs=NUM_REQUESTS * SLACK_S)


def check_request(request: dict[str, Any], server: RunningServer[AsyncLLM]) -> None:
    """One of guidellm's requests against the ledger of its answer's id: what the client saw lies around it."""
    ledger = httpx.get(f"{server.url}/v1/requests/{request['response_id']}").json()
    (choice,) = ledger["choices"]
    timings = request["info"]["timings"]
    assert request["input_metrics"]["text_tokens"] == choice["prompt_tokens"]
    assert request["output_metrics"]["text_tokens"] == choice["output_tokens"]
    first_s = timings["first_token_iteration"] - timings["request_start"]
    whole_s = timings["request_end"] - timings["request_start"]
    assert choice["first_token_s"] <= first_s <= choice["first_token_s"] + 2 * SLACK_S
    assert choice["finished_s"] <= whole_s <= choice["finished_s"] + 2 * SLACK_S


def total(report: dict[str, Any], metric: str) -> float:
    """Sum over all requests that ended well."""
    return float(report["metrics"][metric]["successful"]["total_sum"])
