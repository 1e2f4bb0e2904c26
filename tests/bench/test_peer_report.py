"""What a comparison's page says, from measurements that can be worked out by hand."""

from typing import Any

import pytest
from peer_report import as_markdown, series
from serve_load import tokens_counted


def batch(rate: float, first_token: int = 7) -> dict[str, Any]:
    """A batch in which every rate is the same."""
    rates = dict.fromkeys(("end_to_end", "prefill", "decode"), rate)
    return rates | {"elapsed_s": 2.0, "others_cpu_s": 0.4, "first_tokens": [first_token]}


def result(rounds: list[dict[str, Any]], starts: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """A whole result around some rounds."""
    engines = {"octavo": {"versions": {"octavo": "1"}}, "slow": {}, "fast": {}, "broken": {"error": "no such\ntype"}}
    return {
        "model": "stub",
        "tensors": {"Q4_1": 3},
        "threads": 2,
        "hardware": {"cpu": "a CPU", "usable_cores": 2},
        "command": "python benchmarks/peers.py",
        "orders": {"1": {"beside_busy": False}, "busy": {"beside_busy": True}},
        "engines": engines,
        "rounds": rounds,
        "starts": starts or [],
    }


ROUNDS = [
    {
        "1": {"octavo": [batch(100), batch(300)], "slow": [batch(10, 8)], "fast": [batch(50)]},
        "busy": {"octavo": [batch(100)]},
    },
    {"1": {"octavo": [batch(150)], "fast": [batch(50, 9)]}},
    {"1": {"octavo": [batch(120)], "slow": [batch(10)], "fast": [batch(80)]}, "busy": {"octavo": [batch(30)]}},
]


def test_a_round_counts_as_the_median_of_its_batches_and_may_lack_engines() -> None:
    assert series(result(ROUNDS), "octavo", "1", "decode") == [200, 150, 120]
    assert series(result(ROUNDS), "slow", "1", "decode") == [10, None, 10]
    assert series(result(ROUNDS), "octavo", "32", "decode") == [None, None, None]


def test_the_ratio_is_taken_against_the_best_peer_round_by_round() -> None:
    page = as_markdown(result(ROUNDS))
    assert "| decode, batch 1, steady | 150 | 10 | 50 | - | **3.00** [1.50, 4.00; 75 %] fast |" in page
    assert "| 32 at one time, end to end | - | - | - | - | - |" in page


def test_shares_beside_a_busy_process_are_of_the_same_round() -> None:
    assert "share of the own quiet figure: octavo **0.38** [0.25, 0.50; 50 %]." in as_markdown(result(ROUNDS))


def test_errors_agreement_and_disturbance_are_told() -> None:
    page = as_markdown(result(ROUNDS))
    assert "- broken: **cannot: no such type**\n" in page
    assert "- slow: first token as Octavo's for 1 of 2 prompts" in page
    assert (
        "Others on the machine took 10.0 % of the processor time of a measurement at the median, 10.0 % at worst."
        in page
    )


def test_starts() -> None:
    starts = [{"octavo": {"start_to_first_token_s": 1.0, "peak_memory_bytes": 2**21}, "broken": {"error": "no"}}]
    page = as_markdown(result(ROUNDS, starts))
    assert "| start of the process to the first token, s | 1 | - | - | - |" in page
    assert "| peak memory with 32 at one time, MiB | 2 | - | - | - |" in page


def test_the_server_counts_its_tokens_at_the_end_of_a_stream() -> None:
    tail = b'data: {"usage":{"prompt_tokens":4,"completion_tokens":128,"total_tokens":132}}\n\ndata: [DONE]\n\n'
    assert tokens_counted(tail) == 128
    with pytest.raises(SystemExit, match="too busy"):
        tokens_counted(b'{"error":{"message":"too busy"}}')
    with pytest.raises(SystemExit):
        tokens_counted(tail.replace(b"[DONE]", b""))
