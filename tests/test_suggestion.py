"""What is named in place of a wrong name, and that long ones cost nothing."""

import time

from octavo.suggestion import did_you_mean


def test_the_likest_are_named() -> None:
    known = ["temperature", "top_p", "top_k", "min_p"]
    assert did_you_mean("temprature", known) == "did you mean temperature?"
    assert did_you_mean("top_q", known, most=2) in ("did you mean top_p or top_k?", "did you mean top_k or top_p?")
    assert did_you_mean("top_q", known) == did_you_mean("top_q", known, most=2).split(" or ")[0].rstrip("?") + "?"
    assert did_you_mean("", known) == did_you_mean("stream", known) == did_you_mean("x", []) == ""


def test_a_name_of_any_length_is_compared_quickly() -> None:
    begin = time.thread_time()
    assert did_you_mean("x" * 10**7, [f"x{i}" for i in range(100)]) == ""
    assert time.thread_time() - begin < 1
