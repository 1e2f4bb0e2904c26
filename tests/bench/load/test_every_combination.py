"""Every way to arrive with every data set, against a scripted server in virtual time: each request comes when an
independent calculation says, and every figure is what that calculation gives."""

import heapq
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from octavo.bench.load.datasets import Workload, make_workload
from octavo.bench.load.datasets.words import CommonWords
from octavo.bench.load.dialogue import Dialogue
from octavo.bench.load.run import put_load, serve_figures
from octavo.bench.load.schedule import schedule
from octavo.bench.load.settings import LoadSettings
from octavo.errors import ConfigError
from tests.bench.load.scripted_server import Beat, ScriptedServer, answer, chat_answer, listening
from tests.bench.load.virtual_time import run_virtually

FIRST_S, GAP_S, PROMPT = 0.5, 0.125, 7
"""Of every answer: seconds to its first token, and from token to token; tokens of the prompt as the server counts."""

ARRIVALS: dict[str, dict[str, Any]] = {
    "closed loop, one client": {"max_concurrency": 1},
    "closed loop, three clients": {"max_concurrency": 3},
    "all at once": {"request_rate": math.inf},
    "constant": {"request_rate": 4.0, "burstiness": math.inf},
    "Poisson": {"request_rate": 4.0},
    "bursts": {"request_rate": 4.0, "burstiness": 0.25},
    "more even than Poisson": {"request_rate": 4.0, "burstiness": 4.0},
    "linear ramp": {"request_rate": 1.0, "ramp_to": 9.0},
    "exponential ramp": {"request_rate": 9.0, "ramp_to": 2.0, "ramp": "exponential"},
    "Poisson, two at a time": {"request_rate": 8.0, "max_concurrency": 2},
}
RECORDED: dict[str, dict[str, Any]] = {
    "recorded times": {},
    "recorded times, stretched": {"time_scale": 3.0},
    "recorded times, two at a time": {"max_concurrency": 2},
}


def sharegpt() -> str:
    talks = [[{"from": "human", "value": f"what is {n}"}, {"from": "gpt", "value": "a book"}] * 2 for n in range(9)]
    return json.dumps([{"conversations": talk} for talk in talks])


def azure() -> str:
    rows = [f"2023-11-16 18:17:{n * n / 4:010.7f},{3 + n},{1 + n % 4}" for n in range(9)]
    return "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows])


def mooncake() -> str:
    lengths = [{"input_length": 5 + n, "output_length": n % 5} for n in range(9)]
    return "\n".join(json.dumps({"timestamp": 250 * n, **row, "hash_ids": [n % 2]}) for n, row in enumerate(lengths))


def custom(**more: Callable[[int], Any]) -> str:
    rows = [{"output_len": 1 + n % 3, **{name: make(n) for name, make in more.items()}} for n in range(9)]
    return "\n".join(map(json.dumps, rows))


COUNTED = {"num_prompts": 9, "input_len": 6, "output_len": 3}
UNTIMED: dict[str, tuple[dict[str, Any], str | None]] = {
    "random": ({"dataset": "random", **COUNTED}, None),
    "random lengths": ({"dataset": "random", "range_ratio": 0.75, **COUNTED}, None),
    "prefix": ({"dataset": "prefix", "prefix_len": 8, "num_prefixes": 2, **COUNTED}, None),
    "multi-turn": ({"dataset": "multi-turn", "turns": 3, "think_s": 0.25, **COUNTED}, None),
    "multi-turn of a file": ({"dataset": "multi-turn", "turns": 2, "output_len": 4}, sharegpt()),
    "sharegpt": ({"dataset": "sharegpt", "output_len": 2}, sharegpt()),
    "custom texts": ({"dataset": "custom"}, custom(prompt=lambda n: f"ask {n}")),
    "custom ids": ({"dataset": "custom"}, custom(prompt=lambda n: [n, 1, 2])),
    "custom messages": (
        {"dataset": "custom", "endpoint": "chat"}, custom(messages=lambda n: [{"role": "user", "content": f"ask {n}"}])
    ),
}  # fmt: skip
TIMED: dict[str, tuple[dict[str, Any], str | None]] = {
    "Azure's trace": ({"dataset": "trace"}, azure()),
    "Mooncake's trace": ({"dataset": "trace"}, mooncake()),
    "custom, timed": ({"dataset": "custom"}, custom(prompt=lambda n: f"ask {n}", at_s=lambda n: 7 + n / 8)),
}
DATASETS = UNTIMED | TIMED


@dataclass(frozen=True)
class Foreseen:
    """One request of the calculation."""

    dialogue: int
    intended_s: float
    sent_s: float
    tokens: int

    @property
    def first_s(self) -> float:
        return self.sent_s + FIRST_S

    @property
    def ended_s(self) -> float:
        return self.first_s + GAP_S * (self.tokens - 1)


def foresee(dialogues: Sequence[Dialogue], times: Sequence[float] | None, slots: int | None) -> list[Foreseen]:
    """Each dialogue takes the slot that is free first, at its time or as soon as there is one."""
    free = [0.0] * (slots or len(dialogues))
    seen: list[Foreseen] = []
    order = range(len(dialogues)) if times is None else sorted(range(len(dialogues)), key=times.__getitem__)
    for number in order:
        slot_s = heapq.heappop(free)
        intended_s = slot_s if times is None else times[number]
        begin_s = max(slot_s, intended_s)
        for turn in dialogues[number].turns:
            assert turn.output_len is not None
            seen.append(Foreseen(number, intended_s, begin_s, turn.output_len))
            intended_s = begin_s = seen[-1].ended_s + dialogues[number].think_s
        heapq.heappush(free, seen[-1].ended_s)
    return seen


def under_way(foreseen: Sequence[Foreseen]) -> int:
    """At the moments at which one is sent: those sent before that have not ended."""
    return max(sum(x.sent_s <= now.sent_s < x.ended_s - 1e-9 for x in foreseen) for now in foreseen)


def combinations() -> Iterator[Any]:
    for data in DATASETS:
        for arrivals in [*ARRIVALS, *(RECORDED if data in TIMED else ())]:
            if data not in TIMED or not arrivals.startswith("closed"):  # a data set that has times is no closed loop
                yield pytest.param(data, (ARRIVALS | RECORDED)[arrivals], id=f"{data}, {arrivals}")


def script(chat: bool, _: int, body: dict[str, Any]) -> list[Beat]:
    make = chat_answer if chat else answer
    return make(FIRST_S, GAP_S, body["max_tokens"], PROMPT)


@pytest.mark.parametrize(("data", "arrivals"), list(combinations()))
def test_every_figure(tmp_path: Path, data: str, arrivals: dict[str, Any]) -> None:
    fields, text = DATASETS[data]
    if text is not None:
        (tmp_path / "data").write_text(text)
        fields = {**fields, "dataset_path": str(tmp_path / "data")}
    settings = LoadSettings.from_fields({**fields, **arrivals, "goodput": (f"ttft:{1000 * FIRST_S + 1}",)})
    workload = make_workload(settings.data, CommonWords(), 0)
    server = ScriptedServer(partial(script, settings.target.endpoint == "chat"))

    async def main() -> dict[str, Any]:
        async with listening(server, tmp_path) as connect:
            run = await put_load(settings, workload, connect=connect, cpu_s=lambda: 0.0)
        return serve_figures(run, settings)

    times = schedule(settings.arrivals, workload.measured, settings.data.seed)
    foreseen = foresee(workload.measured, times, settings.arrivals.max_concurrency)
    figures = run_virtually(main())
    assert sorted(at_s for at_s, _ in server.requests) == close(sorted(x.sent_s for x in foreseen))
    check(figures, foreseen, workload)


def check(figures: dict[str, Any], foreseen: Sequence[Foreseen], workload: Workload) -> None:
    run, count = figures["run"], len(foreseen)
    assert (run["requests"], run["completed"], run["errors"]) == (count, count, {})
    tokens = sum(x.tokens for x in foreseen)
    assert run["output_tokens"] == run["asked_output_tokens"] == tokens
    assert run["prompt_tokens"] == PROMPT * count
    lengths = [turn.input_len for dialogue in workload.measured for turn in dialogue.turns]
    assert run["asked_prompt_tokens"] == (None if None in lengths else sum(map(int, filter(None, lengths))))
    end_s = max(x.ended_s for x in foreseen)
    assert run["window"]["end_s"] == close(end_s)
    assert run["completed_per_s"] == close(count / end_s)
    assert run["output_tokens_per_s"] == close(tokens / end_s)
    assert run["total_tokens_per_s"] == close((tokens + PROMPT * count) / end_s)
    last_s = max(x.sent_s for x in foreseen)
    assert figures["attained_request_rate"] == (close(count / last_s) if last_s else None)
    assert run["most_under_way"] == under_way(foreseen)
    latencies = {
        "ttft_s": [x.first_s - x.intended_s for x in foreseen],
        "ttft_from_send_s": [FIRST_S] * count,
        "e2el_s": [x.ended_s - x.intended_s for x in foreseen],
        "e2el_from_send_s": [x.ended_s - x.sent_s for x in foreseen],
        "send_delay_s": [x.sent_s - x.intended_s for x in foreseen],
        "tpot_s": [GAP_S for x in foreseen if x.tokens > 1],
        "itl_s": [GAP_S] * (tokens - count),
    }
    for name, values in latencies.items():
        assert run[name]["count"] == len(values), name
        if values:
            assert run[name]["mean"] == close(sum(values) / len(values)), name
            assert run[name]["max"] == close(max(values)), name
            middle = sorted(values)[(len(values) - 1) // 2 : len(values) // 2 + 1]
            assert run[name]["p50"] == close(sum(middle) / len(middle)), name
    judged = run["goodput"]["default"]
    met = sum(x.first_s - x.intended_s <= FIRST_S + 0.001 for x in foreseen)
    assert (judged["requests"], judged["met"], judged["share"]) == (count, met, met / count)


def close(value: Any) -> Any:
    """Times that a schedule gives are no sums of powers of two: their sums may differ in the last bits."""
    return pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("data", UNTIMED)
def test_data_without_times_cannot_be_stretched(tmp_path: Path, data: str) -> None:
    fields, text = UNTIMED[data]
    if text is not None:
        (tmp_path / "data").write_text(text)
        fields = {**fields, "dataset_path": str(tmp_path / "data")}
    settings = LoadSettings.from_fields({**fields, "time_scale": 2.0})
    workload = make_workload(settings.data, CommonWords(), 0)
    with pytest.raises(ConfigError, match=r"time_scale=2.0: has no effect: the data set has no times"):
        schedule(settings.arrivals, workload.measured, 0)
