"""Chosen draft counts against none and the best fixed one, on machines whose times are known, and told noisily."""

import pytest

from tests.scheduling.draft_simulation import CURVES, TEXTS, compare

FEW = {
    (curve, batch, text)
    for curve, batches in (("knee 16", (1, 4)), ("linear .3", (1, 16)), ("tiles", (4, 16)), ("measured", (1, 4, 32)))
    for batch in batches
    for text in ("p .2", "p .8", "silent .2", "turns up")
}


@pytest.mark.parametrize(("curve", "batch", "text"), sorted(FEW))
def test_never_loses(curve: str, batch: int, text: str) -> None:
    seen = compare(CURVES[curve], batch, TEXTS[text])
    least = 0.91 if text.startswith("turns") else 0.94  # it takes some steps to see
    assert seen.of_best >= least and seen.of_off >= 0.985, seen
