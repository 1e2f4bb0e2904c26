"""What people see of a long load."""

import io
import logging

import pytest

from octavo.engine.load_progress import LoadProgress

TOTAL = 4_000_000_000


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def told(clock: Clock, progress: LoadProgress, seconds: float, steps: int = 64) -> None:
    with progress:
        for step in range(1, steps + 1):
            clock.now = seconds * step / steps
            progress.report(TOTAL * step // steps, TOTAL)


def test_a_short_load_says_nothing(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    for on_terminal in (False, True):
        clock = Clock()
        with caplog.at_level(logging.INFO):
            told(clock, LoadProgress("m", clock, on_terminal=on_terminal), 0.9)
    assert not caplog.text
    assert capsys.readouterr().err == ""


def test_a_long_one_is_logged_every_few_seconds(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with caplog.at_level(logging.INFO, logger="octavo"):
        told(clock, LoadProgress("m", clock, on_terminal=False), 16)
    assert [record.getMessage() for record in caplog.records] == [
        "loading m: 1.2 GB of 4.0 GB (31 %)",
        "loading m: 2.5 GB of 4.0 GB (62 %)",
        "loading m: 3.8 GB of 4.0 GB (93 %)",
    ]


def test_on_a_terminal_it_is_a_bar(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    shown = io.StringIO()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("FORCE_COLOR", "1")
    clock = Clock()
    with caplog.at_level(logging.INFO, logger="octavo"):
        told(clock, LoadProgress("m", clock, on_terminal=True), 16)
    assert "loading m" in shown.getvalue()
    assert not caplog.records
