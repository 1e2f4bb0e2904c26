"""The whole client against a scripted server, in virtual time: every figure is exact. All times are sums of powers of
two, which floats hold exactly."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from octavo.bench.load.datasets import Workload, make_workload
from octavo.bench.load.datasets.words import CommonWords
from octavo.bench.load.dialogue import Dialogue, Turn
from octavo.bench.load.exchange import Exchange
from octavo.bench.load.run import Run, put_load, serve_figures
from octavo.bench.load.schedule import schedule
from octavo.bench.load.settings import LoadSettings
from octavo.bench.load.table import as_table
from octavo.errors import ConfigError
from tests.bench.load.scripted_server import (
    END,
    HANG_UP,
    HEAD,
    Beat,
    Script,
    ScriptedServer,
    answer,
    chunked,
    delta,
    event,
    listening,
    refusal,
    text,
    usage,
    whole,
)
from tests.bench.load.virtual_time import run_virtually

INF = float("inf")


def load(script: Script, folder: Path, dialogues: list[Dialogue], **fields: Any) -> tuple[Run, ScriptedServer]:
    """Sends dialogues; no warm-up."""
    server, settings = ScriptedServer(script), LoadSettings.from_fields(fields)

    async def main() -> Run:
        async with listening(server, folder) as connect:
            return await put_load(settings, Workload(dialogues, []), connect=connect, cpu_s=lambda: 0.0)

    return run_virtually(main()), server


def single(count: int, output_len: int = 3, **fields: Any) -> list[Dialogue]:
    return [Dialogue((Turn(f"prompt {number}", output_len, 7),), **fields) for number in range(count)]


def figures(run: Run, **fields: Any) -> dict[str, Any]:
    return serve_figures(run, LoadSettings.from_fields(fields))


def sent(run: Run) -> list[tuple[int, float, float]]:
    return sorted((x.dialogue, x.intended_s, x.answer.sent_s) for x in run.exchanges)


def steady_answer(number: int, body: dict[str, Any]) -> list[Beat]:
    return answer(0.5, 0.125, 3)


def test_every_figure_of_an_open_loop(tmp_path: Path) -> None:
    """Four requests, one every quarter second; each takes 0.5 s to its first token and 0.125 s to the next two."""
    run, server = load(steady_answer, tmp_path, single(4), request_rate=4, burstiness=INF)
    assert sent(run) == [(n, (n + 1) / 4, (n + 1) / 4) for n in range(4)]
    assert [at_s for at_s, _ in server.requests] == [0.25, 0.5, 0.75, 1.0]
    found = figures(run, request_rate=4, burstiness=INF, goodput=("ttft:500 tpot:125 e2el:750",))
    assert (found["model"], found["request_rate"], found["attained_request_rate"]) == ("scripted", 4, 4.0)
    run_found = found["measured"]
    same = {"count": 4, "mean": 0.5, "p50": 0.5, "p90": 0.5, "p95": 0.5, "p99": 0.5, "max": 0.5}
    assert run_found["ttft_s"] == same == run_found["ttft_from_send_s"]
    assert run_found["tpot_s"] == {**dict.fromkeys(same, 0.125), "count": 4}
    assert run_found["itl_s"] == {**dict.fromkeys(same, 0.125), "count": 8}
    assert run_found["e2el_s"] == {**dict.fromkeys(same, 0.75), "count": 4} == run_found["e2el_from_send_s"]
    assert run_found["send_delay_s"] == {**dict.fromkeys(same, 0.0), "count": 4}
    assert run_found["window"] == {"begin_s": 0.0, "end_s": 1.75, "duration_s": 1.75}
    assert run_found["completed_per_s"] == 4 / 1.75
    assert run_found["output_tokens_per_s"] == 12 / 1.75
    assert run_found["total_tokens_per_s"] == (12 + 28) / 1.75
    assert (run_found["prompt_tokens"], run_found["asked_prompt_tokens"]) == (28, 28)
    assert (run_found["output_tokens"], run_found["asked_output_tokens"]) == (12, 12)
    assert run_found["most_under_way"] == 3
    judged = run_found["goodput"]["default"]
    assert (judged["met"], judged["share"], judged["requests_per_s"], judged["missed_by"]) == (4, 1.0, 4 / 1.75, {})


def test_waiting_for_a_slot_counts(tmp_path: Path) -> None:
    """Two should begin at 1 and 2, but the first takes until 4: the second is sent 2 s late, and its latencies know."""

    def script(number: int, _: dict[str, Any]) -> list[Beat]:
        return answer(3.0, 0.0, 1) if number == 0 else answer(0.5, 0.0, 1)

    run, _ = load(script, tmp_path, single(2), request_rate=1, burstiness=INF, max_concurrency=1)
    assert sent(run) == [(0, 1.0, 1.0), (1, 2.0, 4.0)]
    found = figures(run)["measured"]
    assert found["ttft_s"]["max"] == 3.0
    assert found["ttft_s"]["mean"] == (3.0 + 2.5) / 2
    assert found["ttft_from_send_s"]["mean"] == (3.0 + 0.5) / 2
    assert found["e2el_from_send_s"]["p50"] == 1.75
    assert found["send_delay_s"]["max"] == 2.0
    assert found["tpot_s"] == {"count": 0}


@pytest.mark.parametrize("clients", [1, 2, 3])
def test_a_closed_loop(tmp_path: Path, clients: int) -> None:
    """Each client sends its next request when its last is answered, 0.75 s later."""
    run, server = load(steady_answer, tmp_path, single(6), max_concurrency=clients)
    assert sent(run) == [(n, n // clients * 0.75, n // clients * 0.75) for n in range(6)]
    assert server.connections == 1 + clients  # one asked for the models
    found = figures(run)["measured"]
    assert found["window"]["duration_s"] == 6 / clients * 0.75
    assert found["most_under_way"] == clients
    assert found["completed_per_s"] == clients / 0.75


ARRIVALS: list[dict[str, Any]] = [
    {"request_rate": INF},
    {"request_rate": 8.0, "burstiness": INF},
    {"request_rate": 8.0},
    {"request_rate": 8.0, "burstiness": 0.25},
    {"request_rate": 8.0, "burstiness": 4.0, "seed": 5},
    {"request_rate": 2.0, "ramp_to": 10.0},
    {"request_rate": 9.0, "ramp_to": 3.0, "ramp": "exponential"},
    {"time_scale": 0.5},
]


@pytest.mark.parametrize("fields", ARRIVALS, ids=str)
def test_all_ways_to_arrive_are_kept_to_the_float(tmp_path: Path, fields: dict[str, Any]) -> None:
    """The server sees each request when the schedule says; two runs are one and the same."""
    dialogues = [Dialogue((Turn(str(n), 3),), at_s=100 + n * n / 8) for n in range(20)]
    settings = LoadSettings.from_fields(fields)
    times = schedule(settings.arrivals, dialogues, settings.data.seed)
    assert times is not None
    if "request_rate" not in fields:
        assert times == [n * n / 16 for n in range(20)]
    runs = [load(steady_answer, tmp_path, dialogues, **fields) for _ in range(2)]
    for run, server in runs:
        assert sent(run) == [(n, at_s, at_s) for n, at_s in enumerate(times)]
        assert sorted(at_s for at_s, _ in server.requests) == sorted(times)
    assert runs[0][0] == runs[1][0]


def outcomes(number: int, _: dict[str, Any]) -> list[Beat]:
    partial = (0.25, HEAD + text("a"))
    return [
        answer(0.25, 0.25, 2),
        [(0.25, refusal(429, "queue full"))],
        [(0.25, refusal(503, "draining"))],
        [(0.25, refusal(400, "bad field"))],
        [partial, (0.25, HANG_UP)],
        [partial, (0.25, event({"error": {"message": "engine died", "code": 500}}) + END)],
        [partial, (0.25, text("", "abort") + usage(7, 1))],
        answer(64.0, 0.25, 2),
        [partial, (0.25, chunked(b""))],
        [(0.25, HEAD + event({"error": {"message": "overloaded", "code": 503}}) + END)],
        [(0.25, b"SSH-2.0-x\r\n\r\n")],
        [partial, (0.25, chunked(b"data: {\n\n"))],
        [(0.25, HEAD + text("", "stop") + usage(7, 0))],
    ][number]


def test_what_goes_wrong_is_told_apart(tmp_path: Path) -> None:
    """Each request ends in another way; only the first and the last (an empty answer) are completed."""
    run, _ = load(outcomes, tmp_path, single(13), request_rate=1, burstiness=INF, request_timeout_s=8)
    by_number = {x.dialogue: x.answer for x in run.exchanges}
    assert [by_number[n].outcome.value for n in range(13)] == [
        *("completed", "rejected", "rejected", "errored", "errored", "errored", "aborted", "aborted", "errored"),
        *("rejected", "errored", "errored", "completed"),
    ]
    told = [by_number[n].error for n in range(13)]
    assert told[:4] == [None, "queue full", "draining", "HTTP 400: bad field"]
    assert told[4] == "the connection was lost: closed by the server"
    assert told[5:10] == [
        "engine died",
        "by the server",
        "no end after 8 s",
        "the response ended before the answer did",
        "overloaded",
    ]
    assert told[10] is not None and "no status line" in told[10]
    assert told[11] is not None and told[11].startswith("not what a server of this protocol sends")
    found = figures(run, goodput=("ttft:1000",))["measured"]
    counts = {name: found[name] for name in ("requests", "completed", "rejected", "errored", "aborted")}
    assert counts == {"requests": 13, "completed": 2, "rejected": 3, "errored": 6, "aborted": 2}
    assert found["ttft_s"]["count"] == 1
    assert found["output_tokens"] == 2
    judged = found["goodput"]["default"]
    assert (judged["requests"], judged["met"], judged["share"]) == (13, 2, 2 / 13)
    assert judged["missed_by"] == {"aborted": 2, "errored": 6, "rejected": 3}
    assert found["errors"]["queue full"] == 1
    assert sum(found["errors"].values()) == 11


def test_an_answer_lasts_to_its_last_chunk_and_a_role_is_none(tmp_path: Path) -> None:
    """Roles come before the prompt is read, and counts may come late: neither belongs to the answer's times."""

    def script(_: int, body: dict[str, Any]) -> list[Beat]:
        assert body["messages"] == [{"role": "user", "content": "prompt 0"}]
        return [
            (0.0, HEAD + delta(role="assistant", content="")),
            (1.0, delta(reasoning_content="hm")),
            (0.5, delta(content="so")),
            (0.25, delta(tool_calls=[{"index": 0, "function": {"arguments": "{"}}])),
            (4.0, event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})),
            (0.0, usage(7, 5, cached=4)),
        ]

    run, _ = load(script, tmp_path, single(1), endpoint="chat", request_rate=INF)
    found = figures(run)["measured"]
    assert (found["ttft_s"]["p50"], found["e2el_s"]["p50"], found["tpot_s"]["p50"]) == (1.0, 1.75, 0.75 / 4)
    assert (found["itl_s"]["count"], found["itl_s"]["max"], found["cached_tokens"]) == (2, 0.5, 4)
    assert run.exchanges[0].answer.text == "so"


def test_turns_follow_each_other_and_bring_what_was_said(tmp_path: Path) -> None:
    def script(number: int, _: dict[str, Any]) -> list[Beat]:
        return [(0.5, HEAD + text(f"answer {number}")), (0.0, text("", "stop") + usage(7, 1))]

    dialogue = Dialogue((Turn("one", 4), Turn("two", 5), Turn("three", 6)), think_s=2.0)
    run, server = load(script, tmp_path, [dialogue], request_rate=1)
    assert [at_s for at_s, _ in server.requests] == [1.0, 3.5, 6.0]
    assert [(x.turn, x.intended_s, x.answer.sent_s) for x in run.exchanges] == [
        (0, 1.0, 1.0),
        (1, 3.5, 3.5),
        (2, 6.0, 6.0),
    ]
    assert [body["prompt"] for _, body in server.requests] == [
        "one",
        "one answer 0 two",
        "one answer 0 two answer 1 three",
    ]
    assert [body["max_tokens"] for _, body in server.requests] == [4, 5, 6]


def test_a_chat_of_several_turns(tmp_path: Path) -> None:
    def script(number: int, _: dict[str, Any]) -> list[Beat]:
        finished = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        return [(0.5, HEAD + delta(content=f"answer {number}")), (0.0, finished + usage(7, 1))]

    _, server = load(script, tmp_path, [Dialogue((Turn("one"), Turn("two")))], endpoint="chat", request_rate=1)
    said = [(m["role"], m["content"]) for m in server.requests[1][1]["messages"]]
    assert said == [("user", "one"), ("assistant", "answer 0"), ("user", "two")]
    assert "max_tokens" not in server.requests[0][1]


def test_a_turn_that_fails_ends_its_dialogue(tmp_path: Path) -> None:
    dialogue = Dialogue((Turn("one"), Turn("two")))
    run, server = load(lambda *_: [(0.0, refusal(429, "full"))], tmp_path, [dialogue], request_rate=1)
    assert len(server.requests) == len(run.exchanges) == 1


def test_hanging_up(tmp_path: Path) -> None:
    """Every request is given up by us after one or two of its three chunks, and the server notices."""
    run, server = load(steady_answer, tmp_path, single(8), max_concurrency=1, hang_up_share=1.0)
    lengths = [len(x.answer.chunk_s) for x in run.exchanges]
    assert {x.answer.outcome.value for x in run.exchanges} == {"aborted"}
    assert set(lengths) == {1, 2}
    assert server.hung_up_on == 8
    again, _ = load(steady_answer, tmp_path, single(8), max_concurrency=1, hang_up_share=1.0)
    assert [len(x.answer.chunk_s) for x in again.exchanges] == lengths


def test_windows(tmp_path: Path) -> None:
    """Two clients, eight answers of 0.75 s: at 0.75 two have ended, which is as many as ever were under way; the last
    two are sent at 2.25. In between lie the requests of 0.75, 1.5 and 2.25."""
    run, _ = load(steady_answer, tmp_path, single(8), max_concurrency=2)
    found = figures(run, window="steady")
    assert found["measured"] == found["steady"]
    assert found["steady"]["window"] == {"begin_s": 0.75, "end_s": 2.25, "duration_s": 1.5}
    assert (found["steady"]["requests"], found["run"]["requests"]) == (6, 8)
    # Chunks come 0.5, 0.625 and 0.75 s after each send: of those of 0 the last, all of 0.75 and of 1.5, none of 2.25.
    assert found["steady"]["output_tokens_per_s"] == (2 * (1 + 3 + 3)) / 1.5
    trimmed = figures(run, warm_up_s=0.5, cool_down_s=1.0)["measured"]
    assert trimmed["window"] == {"begin_s": 0.5, "end_s": 2.0, "duration_s": 1.5}
    assert trimmed["requests"] == 4
    assert trimmed["goodput"] == {}


def test_a_run_too_short_for_a_steady_state_says_so(tmp_path: Path) -> None:
    run, _ = load(steady_answer, tmp_path, single(2), max_concurrency=2)
    found = figures(run, window="steady")
    assert found["measured"] is None is found["steady"]
    assert as_table(found).startswith("the chosen window is empty: these are figures of the whole run\nscripted: 2 req")


def test_classes_of_service(tmp_path: Path) -> None:
    """Requests of a class are judged by its promise alone, others by all."""
    waits = [0.25, 0.5, 1.0, 2.0]
    dialogues = [Dialogue((Turn("p", 1),), slo=name) for name in ("chat", "chat", "batch", None)]
    run, _ = load(
        lambda number, _: answer(waits[number], 0.0, 1), tmp_path, dialogues, request_rate=1, burstiness=INF
    )  # fmt: skip
    found = figures(run, goodput=("chat=ttft:250", "batch=ttft:4000,e2el:1500"))["measured"]["goodput"]
    assert (found["chat"]["requests"], found["chat"]["met"], found["chat"]["missed_by"]) == (3, 1, {"ttft": 2})
    assert (found["batch"]["requests"], found["batch"]["met"], found["batch"]["missed_by"]) == (2, 1, {"e2el": 1})
    assert found["chat"]["requests_per_s"] == 1 / 6.0


def test_a_stall_inside_an_answer_can_break_a_promise(tmp_path: Path) -> None:
    def script(_: int, __: dict[str, Any]) -> list[Beat]:
        beats = [(0.125, HEAD + text("a")), (0.125, text("b")), (1.0, text("c")), (0.125, text("d"))]
        return [*beats, (0.0, text("", "length") + usage(7, 4))]

    run, _ = load(script, tmp_path, single(1), request_rate=INF)
    judged = figures(run, goodput=("ttft:200 tpot:500 itl:500",))["measured"]["goodput"]["default"]
    assert judged["missed_by"] == {"itl": 1}


def test_warm_up_comes_before_and_does_not_count(tmp_path: Path) -> None:
    settings = LoadSettings.from_fields({"num_prompts": 3, "input_len": 8, "request_rate": 1, "burstiness": INF})
    workload = make_workload(settings.data, CommonWords(), settings.num_warmups)
    server, heard = ScriptedServer(steady_answer), list[Exchange]()

    async def main() -> Run:
        async with listening(server, tmp_path) as connect:
            return await put_load(settings, workload, heard.append, connect=connect)

    run = run_virtually(main())
    assert [at_s for at_s, _ in server.requests] == [0.0, 0.0, 1.75, 2.75, 3.75]
    assert [x.answer.sent_s for x in run.exchanges] == [1.0, 2.0, 3.0]
    assert heard == run.exchanges
    assert len({body["prompt"] for _, body in server.requests}) == 5


def test_without_counts_of_the_server_chunks_are_counted(tmp_path: Path) -> None:
    def script(_: int, body: dict[str, Any]) -> list[Beat]:
        assert "stream_options" not in body
        assert (body["temperature"], body["ignore_eos"], body["min_p"]) == (0.5, True, 0.25)
        return [(0.5, HEAD + text("a")), (0.5, text("b", "stop") + END)]

    fields = {"extra_body": {"stream_options": None, "min_p": 0.25}, "temperature": 0.5, "ignore_eos": True}
    run, server = load(script, tmp_path, single(1), header=("X-Team: a",), api_key="k", **fields, request_rate=INF)
    found = figures(run)["measured"]
    assert (found["output_tokens"], found["answers_without_usage"], found["tpot_s"]["p50"]) == (2, 1, 0.5)
    assert "\r\nX-Team: a\r\n" in server.heads[1]
    assert "\r\nAuthorization: Bearer k\r\n" in server.heads[1]


def test_a_connection_that_has_rested_is_not_trusted(tmp_path: Path) -> None:
    """Servers close such ones, perhaps just now."""
    _, busy = load(steady_answer, tmp_path, single(5), request_rate=1, burstiness=INF)
    _, rare = load(steady_answer, tmp_path, single(5), request_rate=0.25, burstiness=INF)
    assert (busy.connections, rare.connections) == (2, 6)


def test_prompts_that_do_not_suit_the_endpoint_are_refused_before_anything_is_sent(tmp_path: Path) -> None:
    ids, messages = Dialogue((Turn((1, 2)),)), Dialogue((Turn(({"role": "user", "content": "x"},)),))
    with pytest.raises(ConfigError, match="token ids need completions"):
        load(steady_answer, tmp_path, [ids], endpoint="chat")
    with pytest.raises(ConfigError, match="messages need chat"):
        load(steady_answer, tmp_path, [messages])
    _, server = load(steady_answer, tmp_path, [ids])
    assert server.requests[0][1]["prompt"] == [1, 2]


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    async def main() -> Run:
        def connect(make: Any) -> Any:
            return asyncio.get_running_loop().create_unix_connection(make, str(tmp_path / "nobody"))

        return await put_load(LoadSettings.from_fields({"model": "m"}), Workload(single(2), []), connect=connect)

    run = run_virtually(main())
    assert [x.answer.outcome.value for x in run.exchanges] == ["errored"] * 2
    assert {x.answer.error for x in run.exchanges} == {"no connection: No such file or directory"}
    assert "nothing was completed" in as_table(figures(run))


COUNTS = {"prompt_tokens": 7, "completion_tokens": 3}
WHOLE: dict[str, dict[str, Any]] = {
    "completions": {"choices": [{"index": 0, "text": "abc", "finish_reason": "length"}], "usage": COUNTS},
    "chat": {"choices": [{"message": {"content": "abc"}, "finish_reason": "stop"}], "usage": COUNTS},
}


@pytest.mark.parametrize("endpoint", WHOLE)
def test_answers_that_are_no_streams(tmp_path: Path, endpoint: str) -> None:
    """Of each only the end is known: 0.5 s after it was sent, in two pieces."""

    def script(_: int, body: dict[str, Any]) -> list[Beat]:
        assert not {"stream", "stream_options"} & set(body)
        sent = whole(WHOLE[endpoint])
        return [(0.25, sent[:99]), (0.25, sent[99:])]

    fields = {"stream": False, "endpoint": endpoint, "request_rate": 4, "burstiness": INF}
    run, server = load(script, tmp_path, single(4), **fields)
    found = figures(run, **fields, goodput=("e2el:500",))["measured"]
    assert {x.answer.text for x in run.exchanges} == {"abc"}
    same = {"count": 4, **dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max"), 0.5)}
    assert found["e2el_s"] == found["e2el_from_send_s"] == same
    assert [found[name] for name in ("ttft_s", "ttft_from_send_s", "tpot_s", "itl_s")] == [{"count": 0}] * 4
    assert found["window"] == {"begin_s": 0.0, "end_s": 1.5, "duration_s": 1.5}
    assert (found["completed_per_s"], found["output_tokens_per_s"]) == (4 / 1.5, 12 / 1.5)
    assert (found["total_tokens_per_s"], found["most_under_way"]) == ((12 + 28) / 1.5, 2)
    assert found["goodput"]["default"]["met"] == 4
    assert server.connections == 4  # one for the models; the last request finds one that is open
    shown = as_table(figures(run, **fields))
    assert "E2EL  " in shown and "TTFT" not in shown and "TPOT" not in shown


def test_turns_that_are_no_streams(tmp_path: Path) -> None:
    run, server = load(
        lambda *_: [(0.5, whole(WHOLE["chat"]))], tmp_path, [Dialogue((Turn("one"), Turn("two")), think_s=1.0)],
        endpoint="chat", stream=False, request_rate=1,
    )  # fmt: skip
    assert [at_s for at_s, _ in server.requests] == [1.0, 2.5]
    assert [m["content"] for m in server.requests[1][1]["messages"]] == ["one", "abc", "two"]
    assert len(run.exchanges) == 2


def test_what_goes_wrong_without_streams_is_told_apart(tmp_path: Path) -> None:
    unfinished = {"choices": [{"text": "abc", "finish_reason": None}]}
    aborted = {"choices": [{"text": "abc", "finish_reason": "abort"}]}
    scripts: list[list[Beat]] = [
        [(0.25, refusal(429, "queue full"))],
        [(0.25, refusal(400, "bad field"))],
        [(0.25, whole(WHOLE["completions"])[:-9]), (0.25, HANG_UP)],
        [(0.25, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")],
        [(0.25, HEAD + text("a")), (0.25, END)],
        [(0.25, whole(unfinished))],
        [(0.25, whole(aborted))],
        [(64.0, whole(WHOLE["completions"]))],
    ]
    run, _ = load(
        lambda number, _: scripts[number], tmp_path, single(8), request_rate=1, burstiness=INF, stream=False,
        request_timeout_s=8,
    )  # fmt: skip
    found = {x.dialogue: (x.answer.outcome.value, str(x.answer.error)) for x in run.exchanges}
    unlike = "not what a server of this protocol sends"
    assert [(outcome, error.partition(":")[0]) for _, (outcome, error) in sorted(found.items())] == [
        ("rejected", "queue full"),
        ("errored", "HTTP 400"),
        ("errored", "the connection was lost"),
        ("errored", unlike),
        ("errored", unlike),
        ("errored", "the response ended before the answer did"),
        ("aborted", "by the server"),
        ("aborted", "no end after 8 s"),
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"goodput": ("e2el:9 ttft:3",)}, "only e2el can be judged"),
        ({"goodput": ("e2el:9", "fast=tpot:3")}, "only e2el can be judged"),
        ({"hang_up_share": 0.5}, "needs streams"),
    ],
)
def test_what_needs_streams_is_refused_without(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LoadSettings.from_fields({"stream": False, **fields})


@pytest.mark.parametrize(
    ("fields", "completed", "aborted"),
    [
        ({"request_rate": 1, "burstiness": INF}, 1, 1),
        ({"max_concurrency": 2}, 4, 2),
        ({"request_rate": INF, "max_concurrency": 2}, 4, 2),
    ],
)
def test_a_run_that_is_cancelled_tells_what_was_seen(
    tmp_path: Path, fields: dict[str, Any], completed: int, aborted: int
) -> None:
    """After 2.75 s: what had ended counts, what was under way is given up amid its answer, the rest is never sent."""

    async def main() -> Run:
        async with listening(server, tmp_path) as connect:  # which waits until the server has lost all connections
            put = asyncio.ensure_future(put_load(settings, Workload(single(8), []), connect=connect, cpu_s=lambda: 0.0))
            asyncio.get_running_loop().call_at(2.75, put.cancel)
            return await put

    server, settings = ScriptedServer(lambda *_: answer(0.5, 0.75, 2)), LoadSettings.from_fields(fields)
    run = run_virtually(main())
    assert run.interrupted
    assert {x.answer.ended_s for x in run.exchanges if x.answer.outcome.value == "aborted"} == {2.75}
    assert {x.answer.error for x in run.exchanges} == {None, "interrupted"}
    found = figures(run)
    assert (found["run"]["completed"], found["run"]["aborted"]) == (completed, aborted)
    assert found["run"]["requests"] == len(server.requests) == completed + aborted
    assert found["run"]["window"]["end_s"] == 2.75
    assert server.hung_up_on == aborted
    assert as_table(found).startswith("interrupted: these are figures of what was done by then\nscripted: ")


def test_a_cancelled_warm_up_has_no_figures(tmp_path: Path) -> None:
    async def main() -> Run:
        async with listening(server, tmp_path) as connect:
            put = asyncio.ensure_future(put_load(LoadSettings(), Workload(single(2), single(1)), connect=connect))
            asyncio.get_running_loop().call_at(0.25, put.cancel)
            return await put

    server = ScriptedServer(steady_answer)
    with pytest.raises(asyncio.CancelledError):
        run_virtually(main())
    assert len(server.requests) == server.hung_up_on == 1
