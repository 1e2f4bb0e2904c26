"""Ledgers of real requests: they add up over every path into the engine, whatever happens on the way."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from octavo import LLM, SamplingParams
from octavo.request.ledger_form import request_form
from octavo.request.outputs import FinishReason, RequestStats
from tests.end_to_end.conftest import serving
from tests.scheduling.closed_ledger import check_closed
from tests.server.conftest import wait_until

SETTINGS: dict[str, Any] = {
    "num_kv_blocks": 60,
    "block_size": 4,
    "max_model_len": 200,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 24,
    "admission_conservativeness": 0.0,
    "speculative_config": {"method": "ngram", "num_speculative_tokens": 3},
}
"""Room for two long requests and no more: some fall and come back, some wait."""
MILLISECOND = 1e-3


def check_choice(choice: dict[str, Any]) -> None:
    """As `check_closed`, of a ledger over HTTP: it adds up to within a millisecond, to the token."""
    assert choice["unknown"] == [] or "not been measured" in choice["unknown"][0]
    phases = {phase["phase"]: phase for phase in choice["phases"]}
    assert sum(phase["seconds"] for phase in phases.values()) == pytest.approx(choice["e2e_s"], abs=MILLISECOND)
    core_s = sum(phase["seconds"] for name, phase in phases.items() if name not in ("prepare", "submit", "deliver"))
    assert core_s == pytest.approx(choice["finished_s"] - choice["since_s"], abs=MILLISECOND)
    for name in {"queue", "preempted", "stalled"} & set(phases):
        assert sum(phases[name]["waits"].values()) == pytest.approx(phases[name]["seconds"], abs=MILLISECOND)
    steps = sum(phase["work"]["steps"] for phase in choice["phases"] if phase["work"] is not None)
    assert steps == choice["steps"] == sum(chunk["steps"] for chunk in choice["chunks"])
    assert sum(choice["cached_tokens_by_tier"].values()) == choice["cached_tokens"]
    if choice["finish_reason"] in ("stop", "length") and choice["output_tokens"]:
        held = choice["prompt_tokens"] + choice["output_tokens"] - 1 + choice["overrun_tokens"]
        assert held == choice["cached_tokens"] + choice["spared_tokens"] + choice["fresh_tokens"]


@pytest.fixture(scope="module")
def client(tiny_file: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Of a server with little memory, drafts and a tier on disk."""
    folder = tmp_path_factory.mktemp("kv")
    settings = {**SETTINGS, "kv_disk_path": str(folder), "kv_disk_size_bytes": 10**8}
    with serving(tiny_file, **settings) as server, httpx.Client(base_url=server.url, timeout=60) as made:
        yield made


def ledger(client: httpx.Client, name: str) -> dict[str, Any]:
    """Once the answer is known to have left."""

    def fetch() -> dict[str, Any]:
        found = client.get(f"/v1/requests/{name}")
        assert found.status_code == 200, found.text
        form: dict[str, Any] = found.json()
        return form

    wait_until(lambda: all(has_left(choice) for choice in fetch()["choices"]), "the answer has left")
    form = fetch()
    first_s = min(choice["first_scheduled_s"] - waited_s(choice) for choice in form["choices"])
    assert first_s == pytest.approx(0.0, abs=MILLISECOND)
    for choice in form["choices"]:
        choice["since_s"] = choice["first_scheduled_s"] - waited_s(choice)
        check_choice(choice)
    return form


def has_left(choice: dict[str, Any]) -> bool:
    return choice["finish_reason"] == "abort" or any(phase["phase"] == "deliver" for phase in choice["phases"])


def waited_s(choice: dict[str, Any]) -> float:
    return sum(phase["seconds"] for phase in choice["phases"] if phase["phase"] == "queue")


BODY: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "max_tokens": 20}


def test_a_whole_answer(client: httpx.Client) -> None:
    before = time.monotonic()
    answer = client.post("/v1/completions", json=BODY | {"prompt": "a whole answer", "n": 2}).json()
    took_s = time.monotonic() - before
    form = ledger(client, answer["id"])
    assert len(form["choices"]) == 2
    for choice in form["choices"]:
        names = [phase["phase"] for phase in choice["phases"]]
        assert names[:2] == ["prepare", "submit"] and names[-3:] == ["prefill", "decode", "deliver"]
        assert 0 < choice["e2e_s"] <= took_s


def test_a_stream_ends_with_its_last_byte(client: httpx.Client) -> None:
    before = time.monotonic()
    with client.stream("POST", "/v1/completions", json=BODY | {"prompt": "a stream", "stream": True}) as answer:
        events = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {")]
    (choice,) = ledger(client, events[0]["id"])["choices"]
    took_s = time.monotonic() - before  # the server may learn that its last byte has left after that has arrived
    assert 0 < choice["e2e_s"] <= took_s
    assert choice["output_tokens"] == 20


def test_chats_and_their_stop_strings(client: httpx.Client) -> None:
    whole = client.post("/v1/completions", json=BODY | {"prompt": "stops", "max_tokens": 40}).json()
    stop = whole["choices"][0]["text"][5:7]
    answer = client.post("/v1/completions", json=BODY | {"prompt": "stops", "max_tokens": 40, "stop": [stop]}).json()
    assert answer["choices"][0]["finish_reason"] == "stop"
    (choice,) = ledger(client, answer["id"])["choices"]
    assert choice["finish_reason"] == "stop" and choice["cached_tokens"] > 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_in_the_very_last_token_is_a_stop_for_all(client: httpx.Client, stream: bool) -> None:
    """The core ends the answer for its length; whoever makes the text finds the stop string later."""
    whole = client.post("/v1/completions", json=BODY | {"prompt": "stops", "max_tokens": 40, "logprobs": 0}).json()
    text, offsets = whole["choices"][0]["text"], whole["choices"][0]["logprobs"]["text_offset"]
    last = next(i for i in range(8, 40) if text.find(text[offsets[i] - 4 : offsets[i] + 1]) == offsets[i] - 4)
    stop = text[offsets[last] - 4 : offsets[last] + 1]
    body = BODY | {"prompt": "stops", "max_tokens": last + 1, "stop": [stop], "stream": stream}
    name = f"race-{stream}"
    answer = client.post("/v1/completions", json=body, headers={"X-Request-Id": name})
    assert '"finish_reason":"stop"' in answer.text.replace(" ", "")
    (choice,) = ledger(client, name)["choices"]
    assert choice["finish_reason"] == "stop" and choice["output_tokens"] == last + 1


def test_vectors(client: httpx.Client) -> None:
    headers = {"X-Request-Id": "vectors"}
    answer = client.post("/v1/embeddings", json={"input": ["one", "another one"]}, headers=headers)
    assert answer.status_code == 200, answer.text
    form = ledger(client, "vectors")
    assert len(form["choices"]) == 2
    for choice in form["choices"]:
        assert "decode" not in {phase["phase"] for phase in choice["phases"]}


def test_a_mixed_crowd(client: httpx.Client) -> None:
    """Long and short, alike and not, some with drafts that come true, some that leave in the middle."""
    common = "once upon a time there was a house and in that house there was a mouse " * 2

    def ask(index: int) -> str:
        prompt = common[: 40 + 9 * (index % 8)] if index % 3 else f"{index} words of its own " * 3
        body = BODY | {"prompt": prompt, "max_tokens": 10 + 12 * (index % 5), "stream": index % 4 == 0}
        name = f"crowd-{index}"
        with client.stream("POST", "/v1/completions", json=body, headers={"X-Request-Id": name}) as answer:
            assert answer.status_code == 200
            if index % 8 == 0:  # leaves after the first token
                next(answer.iter_lines())
            else:
                answer.read()
        return name

    with ThreadPoolExecutor(12) as pool:
        names = list(pool.map(ask, range(36)))
    totals = {"preemptions": 0, "cached_tokens": 0, "drafts": 0}
    reasons = set()
    for name in names:
        (choice,) = ledger(client, name)["choices"]
        totals["preemptions"] += choice["preemptions"]
        totals["cached_tokens"] += choice["cached_tokens"]
        totals["drafts"] += (choice["speculation"] or {"accepted_tokens": 0})["accepted_tokens"]
        reasons |= {reason for phase in choice["phases"] for reason in phase["waits"] or {}}
    assert all(totals.values()), totals
    assert {"slots", "blocks"} & reasons


def test_the_library(tiny_file: str) -> None:
    params = SamplingParams(temperature=0, max_tokens=12, n=2, ignore_eos=True)
    with LLM(tiny_file, **{**SETTINGS, "threads": 1}) as llm:
        begin_s = time.monotonic()
        outputs = llm.generate(["a prompt", "another, longer prompt"], params)
        took_s = time.monotonic() - begin_s
        text = outputs[0].outputs[0].text
        (stopped,) = llm.generate("a prompt", SamplingParams(temperature=0, max_tokens=12, stop=(text[3:5],)))
        *_, last = llm.stream("a stream", SamplingParams(temperature=0, max_tokens=5))
        (vector,) = llm.embed("a vector")
    ledgers = [stats for output in [*outputs, stopped] for stats in output.ledger]
    assert stopped.outputs[0].finish_reason is FinishReason.STOP
    for stats in ledgers:
        assert stats is not None and stats.delivered_s is not None and stats.received_s is not None
        check_stats(stats)
        assert stats.e2e_s == pytest.approx(stats.delivered_s - stats.received_s, abs=MILLISECOND)
    slowest = max(stats.e2e_s for output in outputs for stats in output.ledger if stats is not None)
    assert slowest <= took_s
    for seen in (last.choice.stats, vector.stats):
        assert seen is not None
        check_stats(seen)
    (form,) = [request_form(output.request_ledger, 0.0) for output in outputs[:1]]
    assert [choice["output_tokens"] for choice in form["choices"]] == [12, 12]


def check_stats(stats: RequestStats) -> None:
    reason = FinishReason.LENGTH if stats.num_output_tokens else FinishReason.STOP
    check_closed(stats, reason, within_s=MILLISECOND)
    assert stats.account is not None
    assert all(work.flops and work.weight_bytes and work.kv_bytes for work in stats.account.work.values())
