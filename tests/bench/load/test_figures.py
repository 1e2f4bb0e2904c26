"""Figures of recorded exchanges, the table, and settings that cannot work."""

from array import array
from dataclasses import replace
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.load.exchange import Answer, Exchange, Outcome
from octavo.bench.load.goodput import SloClass, parse_slo_class
from octavo.bench.load.run import Run, serve_figures
from octavo.bench.load.settings import LoadSettings
from octavo.bench.load.spread import PERCENTILES, spread
from octavo.bench.load.table import as_table
from octavo.bench.load.window import Window, most_under_way, steady_state, trimmed, whole_run
from octavo.errors import ConfigError


def exchange(intended_s: float, sent_s: float, ended_s: float, chunks: list[float], **answer: Any) -> Exchange:
    outcome = answer.pop("outcome", Outcome.COMPLETED)
    told = Answer(sent_s, ended_s, outcome, array("d", chunks), **answer)
    return Exchange(0, 0, intended_s, told, input_len=4, output_len=3)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_percentiles_are_numpys(values: list[float]) -> None:
    found = spread(values)
    expected = numpy.percentile(values, PERCENTILES)
    assert [found[f"p{percent}"] for percent in PERCENTILES] == pytest.approx(list(expected), rel=1e-9, abs=1e-6)
    assert (found["count"], found["max"]) == (len(values), max(values))
    assert found["mean"] == pytest.approx(numpy.mean(values), rel=1e-9, abs=1e-6)


def test_nothing_has_no_percentiles() -> None:
    assert spread([]) == {"count": 0}


def test_windows_of_no_requests() -> None:
    assert (whole_run([]), steady_state([]), most_under_way([])) == (Window(0.0, 0.0), None, 0)
    assert trimmed(Window(0.0, 2.0), 1.0, 1.0) is None


@pytest.mark.parametrize(
    ("fields", "rates"),
    [
        ({"request_rate": 2.0}, "asked 2 dialogues, attained 2, completed 1"),
        ({"max_concurrency": 1}, "completed 1"),
    ],
)
def test_the_table_of_dialogues(fields: dict[str, Any], rates: str) -> None:
    """A rate is one of dialogues; a closed loop has none; what a later turn brings is not known beforehand."""
    first = exchange(0.0, 0.0, 1.0, [0.5, 1.0], prompt_tokens=4, output_tokens=2)
    later = replace(exchange(1.0, 1.0, 2.0, [1.5, 2.0], prompt_tokens=4, output_tokens=2), turn=1, input_len=None)
    run = Run([replace(first, dialogue=0), replace(later, dialogue=0)], model="m", cpu_share=0.1)
    lines = as_table(serve_figures(run, LoadSettings.from_fields(fields))).splitlines()
    assert lines[1] == f"requests/s    {rates}"
    assert lines[3] == "tokens        prompts 8 (asked -), answers 4 (asked 6)"


def test_the_table() -> None:
    run = Run(
        [
            exchange(0.0, 0.5, 2.0, [1.0, 1.5, 2.0], prompt_tokens=4, output_tokens=3, cached_tokens=1),
            exchange(1.0, 1.0, 1.25, [], outcome=Outcome.REJECTED, error="queue full"),
            exchange(2.0, 2.0, 4.0, [3.0, 4.0], outcome=Outcome.ABORTED, error="no end after 2 s"),
            exchange(2.0, 2.0, 4.0, [3.5, 4.0], prompt_tokens=4, output_tokens=2),
        ],
        model="m",
        cpu_share=0.9,
    )
    settings = LoadSettings.from_fields({"request_rate": 2.0, "goodput": ("ttft:1000 e2el:2000",)})
    assert as_table(serve_figures(run, settings)).splitlines() == [
        "m: 4 requests from 0.000 to 4.000 s: 2 completed, 1 rejected, 0 errored, 1 aborted",
        "requests/s    asked 2, attained 2, completed 0.5",
        "tokens/s      output 1.75, with prompts 3.75",
        "tokens        prompts 8 (asked 8, cached 1), answers 5 (asked 6)",
        "under way     2 at most; the client used 0.90 cores",
        "",
        "ms                     mean        p50        p90        p95        p99        max",
        "TTFT                1250.00    1250.00    1450.00    1475.00    1495.00    1500.00",
        "TPOT                 500.00     500.00     500.00     500.00     500.00     500.00",
        "ITL                  500.00     500.00     500.00     500.00     500.00     500.00",
        "E2EL                2000.00    2000.00    2000.00    2000.00    2000.00    2000.00",
        "TTFT from send      1000.00    1000.00    1400.00    1450.00    1490.00    1500.00",
        "E2EL from send      1750.00    1750.00    1950.00    1975.00    1995.00    2000.00",
        "send delay           250.00     250.00     450.00     475.00     495.00     500.00",
        "goodput default [ttft 1000 ms, e2el 2000 ms]: 1 of 4 (25.0 %), 0.25/s; missed: 1 aborted, 1 rejected, 1 ttft",
        "1 x queue full",
        "1 x no end after 2 s",
        "the client was busy itself: give it a quieter machine, or less to do, before you trust this",
    ]


@pytest.mark.parametrize(
    ("counted", "line"),
    [
        (3, None),
        (None, "1 answers came without a count of tokens: their chunks stand for them"),
        (0, "1 answers came with a count of tokens that cannot be: none, or more than were asked for"),
        (4, "1 answers came with a count of tokens that cannot be: none, or more than were asked for"),
    ],
)
def test_the_table_says_which_counts_are_not_to_be_trusted(counted: int | None, line: str | None) -> None:
    run = Run([exchange(0.0, 0.0, 2.0, [1.0, 2.0], output_tokens=counted)], model="m", cpu_share=0.0)
    lines = as_table(serve_figures(run, LoadSettings())).splitlines()
    assert [one for one in lines if "count of tokens" in one] == ([] if line is None else [line])


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("ttft:300 tpot:60 e2el:9000", SloClass("default", {"ttft": 0.3, "tpot": 0.06, "e2el": 9.0})),
        ("chat=ttft:250,itl:0.5", SloClass("chat", {"ttft": 0.25, "itl": 0.0005})),
    ],
)
def test_promises(text: str, read: SloClass) -> None:
    assert parse_slo_class(text) == read


@pytest.mark.parametrize("text", ["", "x=", "=ttft:1", "ttft", "ttft:x", "ttft:-1", "ttft:nan", "p99:3"])
def test_promises_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ConfigError, match="write limits in milliseconds"):
        parse_slo_class(text)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"url": "ftp://x"}, "url='ftp://x': write it like"),
        ({"url": "http://x:99999"}, "is no URL"),
        ({"endpoint": "embeddings"}, "must be one of completions, chat"),
        ({"header": ("no colon",)}, "write it as 'NAME: VALUE'"),
        ({"header": ("a: b\r\nc: d",)}, "write it as 'NAME: VALUE'"),
        ({"api_key": "a\nb"}, "api_key='...': must be printable ASCII"),
        ({"request_timeout_s": 0}, "must be above 0"),
        ({"dataset": "sonnet"}, "must be one of random, prefix"),
        ({"dataset": "trace"}, "needs its file: dataset_path"),
        ({"dataset_path": "x"}, "has no effect with dataset=random"),
        ({"num_prompts": 0}, "must be at least 1"),
        ({"range_ratio": 1.0}, r"must be in \[0, 1\)"),
        ({"think_s": -1.0}, "must not be negative"),
        ({"request_rate": 0.0}, "must be above 0"),
        ({"burstiness": float("nan")}, "must be above 0"),
        ({"ramp_to": 3.0}, "needs a finite request_rate"),
        ({"ramp_to": 3.0, "request_rate": float("inf")}, "needs a finite request_rate"),
        ({"time_scale": float("inf")}, "must be finite"),
        ({"num_warmups": -1}, "must not be negative"),
        ({"window": "end"}, "must be one of run, steady"),
        ({"hang_up_share": 1.5}, r"must be in \[0, 1\]"),
        ({"goodput": ("ttft:1", "tpot:1")}, "two classes of one name"),
    ],
)
def test_settings_that_cannot_work(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LoadSettings.from_fields(fields)
