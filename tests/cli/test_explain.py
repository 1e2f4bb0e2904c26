"""`octavo explain`: a request of a server, or one that runs here, as text and as JSON."""

import json
from pathlib import Path

import httpx
import pytest

from octavo import AsyncLLM
from octavo.cli.explanation import PHASES, WAITS, amount, count, explain, seconds
from octavo.config import ServerConfig
from octavo.engine.machine_rates import profile_path
from octavo.platform.cpu import describe_machine
from octavo.request.account import Account, ChunkRun, Phase, WaitReason, WorkDone
from octavo.request.ledger import ChoiceLedger, RequestLedger
from octavo.request.ledger_form import request_form
from octavo.request.outputs import FinishReason, RequestStats
from tests.cli.test_main import octavo
from tests.end_to_end.conftest import serving
from tests.server.running import running_server

PROFILE = {"device": {"memory_bytes_per_s": 1e10, "flops_per_s": {"int8": 1e11, "fp32": 5e10}}}


def test_the_whole_story() -> None:
    stats = RequestStats(
        received_s=99.5,
        sent_s=99.75,
        arrival_s=100.0,
        first_scheduled_s=103.0,
        first_token_s=105.0,
        finished_s=110.0,
        delivered_s=110.25,
        num_prompt_tokens=2050,
        num_output_tokens=300,
        num_cached_tokens=50,
        num_loaded_tokens={"disk": 32},
        num_computed_tokens=2299,
        num_recomputed_tokens=16,
        num_preemptions=1,
        num_drafts=2,
        num_draft_tokens=6,
        num_accepted_draft_tokens=4,
        num_saved_steps=4,
        num_overrun_tokens=1,
        num_steps=304,
        max_blocks=147,
        account=Account(
            phases_s={Phase.QUEUE: 3.0, Phase.PREFILL: 2.0, Phase.DECODE: 5.0},
            waits_s={Phase.QUEUE: {WaitReason.SLOTS: 2.0, WaitReason.BLOCKS: 1.0}},
            chunks=[
                ChunkRun(Phase.PREFILL, 50, 500, 4, 2000, 0, 3),
                ChunkRun(Phase.DECODE, 2050, 1, 299, 299, 4, 302),
                ChunkRun(Phase.PREFILL, 0, 0, 2, 9, 303, 310),
            ],
            work={
                Phase.PREFILL: WorkDone(
                    num_steps=4, num_tokens=2000, share_s=1.5, steps_s=1.9, flops=10**12, weight_bytes=2e9,
                    kv_bytes=10**6, bound_s=1.0, bound_by="arithmetic",
                )
            },
            block_seconds=1000.0,
            blocks=[(103.0, 130), (106.0, 147)],
        ),
    )  # fmt: skip
    choice = ChoiceLedger(request_id="r-0", state="finished", finish_reason=FinishReason.LENGTH, stats=stats)
    ledger = RequestLedger(request_id="cmpl-1", alias="mine", choices=[choice], now_s=120.0)
    form = request_form(ledger, 1_000_000.0)
    assert form == json.loads(json.dumps(form))
    assert list(explain(form)) == [
        "cmpl-1 (mine): finished, priority 0",
        "",
        "choice 0: length; 2,050 prompt and 300 output tokens in 10.75 s",
        "  prepare      250.0 ms    2.3%   read, rendered, tokenised",
        "  submit       250.0 ms    2.3%   on its way into the engine, between two steps",
        "  queue          3.00 s   27.9%   waiting to run",
        "                 2.00 s           for a place among the running (max_num_seqs)",
        "                 1.00 s           for KV blocks",
        "  prefill        2.00 s   18.6%   to the first token",
        "  decode         5.00 s   46.5%   to the last token",
        "  deliver      250.0 ms    2.3%   on its way out",
        "  sum           10.75 s",
        "  steps      prefill    steps 0 to 3: 4 steps, 500 tokens each, from token 50 on",
        "             decode     steps 4 to 302: 299 steps, 1 token each, from token 2,050 on",
        "             prefill    steps 303 to 310: 2 steps, different sizes, from token 0 on",
        "  tokens     2,299 run; 50 of the prompt cached (18 device, 32 disk)",
        "             1 preemption: 16 run again, 0 found again in the cache",
        "             6 draft tokens tried, 4 right, 4 steps saved",
        "             1 run behind the end, which nobody foresaw",
        "  prefill        1.50 s           its part of 4 steps of 1.90 s, 2,000 rows",
        "                                  1 TFLOP, 2 GB of weights, 1 MB of KV",
        "                 1.00 s           at least, by arithmetic; the phase took 2.0 times that",
        "  blocks     147 at most, 1,000.0 block seconds: 130@3.00s 147@6.00s",
    ]


def test_every_phase_and_reason_has_words() -> None:
    assert set(PHASES) == {"prepare", "submit", *map(str, Phase), "deliver"}
    assert set(WAITS) == set(map(str, WaitReason))


def test_a_ledger_without_account_says_why() -> None:
    choice = ChoiceLedger(request_id="r", state="running", stats=RequestStats(arrival_s=1.0, num_prompt_tokens=3))
    *_, last = explain(request_form(RequestLedger(request_id="r", choices=[choice], now_s=2.0), 0.0))
    assert last == "  unknown    request_ledger is off"


def test_numbers_as_people_read_them() -> None:
    assert [seconds(0.0123), seconds(12.345)] == ["12.3 ms", "12.35 s"]
    assert [count(1, "step"), count(2000, "step")] == ["1 step", "2,000 steps"]
    assert [amount(999, "B"), amount(1.5e9, "FLOP")] == ["999 B", "1.5 GFLOP"]


def test_a_text_that_runs_here(tiny_model: str, tmp_path: Path) -> None:
    """On a machine that was measured, so that there are bounds."""
    path = profile_path(tmp_path, describe_machine())
    path.parent.mkdir()
    path.write_text(json.dumps(PROFILE))
    flags = ("explain", "-m", tiny_model, "--prompt", "a text", "--max-tokens", "5", "--threads", "1")
    told = octavo(*flags, "--json", cache=tmp_path)
    assert told.returncode == 0, told.stderr
    (choice,) = json.loads(told.stdout)["choices"]
    assert choice["output_tokens"] == 5 and choice["unknown"] == []
    works = [phase["work"] for phase in choice["phases"] if phase["work"] is not None]
    assert [work["steps"] for work in works] == [1, 4]
    for work in works:
        arithmetic_s = [work["flops"] / rate for rate in (1e11, 5e10)]
        memory_s = (work["steps"] * 1e-10 * works[0]["weight_bytes"], work["kv_bytes"] * 1e-10)
        assert work["bound_s"] >= max(arithmetic_s[0], *memory_s) * 0.9
        assert work["bound_s"] <= arithmetic_s[1] + 1.1 * sum(memory_s)


def test_a_key_shows_what_it_has_made(tiny_model: str) -> None:
    async def start() -> AsyncLLM:
        return await AsyncLLM.start(tiny_model, threads=1, max_model_len=256, num_kv_blocks=100)

    config = ServerConfig(port=0, shutdown_timeout=5, api_key=("mine", "theirs"))
    with running_server(start, config, stop_engine=AsyncLLM.shutdown) as server:
        headers = {"X-Request-Id": "r", "Authorization": "Bearer mine"}
        body = {"prompt": "a request", "max_tokens": 2, "ignore_eos": True}
        assert httpx.post(f"{server.url}/v1/completions", json=body, headers=headers).status_code == 200
        told = octavo("explain", "r", "--url", server.url, "--api-key", "mine")
        refused = [octavo("explain", "r", "--url", server.url, *key) for key in ((), ("--api-key", "theirs"))]
    assert told.returncode == 0 and "2 output tokens" in told.stdout
    assert [done.returncode for done in refused] == [2, 2]
    assert "$OCTAVO_API_KEY" in refused[0].stderr and "there is no request 'r'" in refused[1].stderr


def test_a_request_of_a_server(tiny_model: str) -> None:
    with serving(tiny_model) as server:
        body = {"prompt": "a request", "max_tokens": 4, "ignore_eos": True}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, headers={"X-Request-Id": "mine"}).json()
        told = octavo("explain", "mine", "--url", server.url)
        unknown = octavo("explain", "theirs", "--url", f"{server.url}/v1/")
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith(f"{answer['id']} (mine): finished")
    assert "  deliver " in told.stdout and "4 output tokens" in told.stdout
    assert unknown.returncode == 2 and "there is no request 'theirs'" in unknown.stderr


@pytest.mark.parametrize(
    ("flags", "code", "problem"),
    [
        (
            ("cmpl-1", "--url", "http://127.0.0.1:1"),
            1,
            "answers at http://127.0.0.1:1: [Errno 111] Connection refused; ",
        ),
        (("cmpl-1", "--url", "localhost"), 2, "must begin with http://"),
        ((), 2, "octavo: REQUEST_ID is missing: name a request of a server, or give a --prompt to run here ("),
        (
            ("cmpl-1", "--prompt", "x"),
            2,
            "REQUEST_ID='cmpl-1': names a request of a server; without it --prompt runs here",
        ),
        (("cmpl-1", "--threads", "2"), 2, "is for a --prompt that runs here"),
    ],
)
def test_what_cannot_be(flags: tuple[str, ...], code: int, problem: str) -> None:
    done = octavo("explain", *flags)
    assert done.returncode == code and problem in done.stderr and done.stderr.count("\n") == 1
