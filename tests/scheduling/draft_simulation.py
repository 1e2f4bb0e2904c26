"""A machine whose step times and drafts are known, to weigh chosen draft counts against fixed ones:
`python -m tests.scheduling.draft_simulation [--seed N]`."""

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from octavo.scheduling.adaptive_draft_counts import AdaptiveDraftCounts
from octavo.scheduling.draft_counts import DraftCounts, FixedDraftCounts

MOST = 16
"""Most drafts of a request."""
MOST_PER_STEP = 64
SEED = 7
"""Of drafts and noise; the next one is noise's. The constants of `AdaptiveDraftCounts` were chosen with it."""

Curve = Callable[[int], float]
"""Rows of a step -> its time."""


def knee(rows_at_knee: int) -> Curve:
    """Flat up to there, then each row as much more as would take its time to that of rows that cost all the same."""
    return lambda rows: 1.0 + max(0, rows - rows_at_knee) / rows_at_knee


def linear(per_row: float) -> Curve:
    return lambda rows: 1.0 + per_row * (rows - 1)


def tiles(rows: int) -> float:
    """Sixteen rows take as long as one."""
    return 0.5 + 0.5 * ((rows + 15) // 16)


def measured(rows: int) -> float:
    """A step of a small model on two cores."""
    points = [(1, 1.0), (2, 1.1), (3, 1.21), (4, 1.35), (5, 1.49), (6, 1.59), (8, 1.64), (9, 1.79), (12, 1.89)]
    points += [(16, 2.13), (17, 2.63), (24, 2.99), (32, 3.55), (33, 4.1), (48, 4.9), (64, 6.46), (128, 13.0)]
    for (low, first), (high, last) in pairwise(points):
        if rows <= high:
            return first + (last - first) * (rows - low) / (high - low)
    return points[-1][1] * rows / points[-1][0]


CURVES: dict[str, Curve] = {
    "knee 4": knee(4),
    "knee 16": knee(16),
    "knee 64": knee(64),
    "linear": linear(1.0),
    "linear .3": linear(0.3),
    "linear .05": linear(0.05),
    "tiles": tiles,
    "measured": measured,
}


@dataclass
class Text:
    """An answer to who guesses it: chances that there is a draft, that it goes on, that a token of it is right."""

    right: float
    speaks: float = 1.0
    goes_on: float = 1.0

    def draft(self, most: int, chances: random.Random) -> tuple[int, int]:
        """(drafts, right ones)"""
        if not most or chances.random() >= self.speaks:
            return 0, 0
        count = 1
        while count < most and (self.goes_on == 1.0 or chances.random() < self.goes_on):
            count += 1
        right = 0
        while right < count and chances.random() < self.right:
            right += 1
        return count, right


Texts = Callable[[int, float], Text]
"""(place in the batch, share of the run that is over) -> text"""


def all_alike(text: Text) -> Texts:
    return lambda place, time: text


@dataclass
class Run:
    """What came of it."""

    tokens: int = 0
    seconds: float = 0.0
    steps: int = 0
    drafts: int = 0

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def run(
    counts: DraftCounts | None,
    batch: int,
    curve: Curve,
    texts: Texts,
    *,
    tokens: int,
    length: int = 250,
    noise: float = 0.1,
    outliers: float = 0.01,
    seed: int = SEED,
) -> Run:
    """Answers of `length` tokens each, until there are so many tokens. Times are told with noise, counted without."""
    chances, noises, done = random.Random(seed), random.Random(seed + 1), Run()
    left = [length * (place + 1) // batch for place in range(batch)]
    names, serial = [f"{place}" for place in range(batch)], batch
    while done.tokens < tokens:
        time = done.tokens / tokens
        planned: Sequence[int] = [0] * batch
        if counts is not None and counts.worth_asking(batch, batch):
            candidates = [(name, most - 1) for name, most in zip(names, left, strict=True) if most > 1]
            given = iter(counts.plan_step(batch, batch, counts.most_per_step, candidates).counts)
            planned = [next(given) if most > 1 else 0 for most in left]
        drafted = [texts(place, time).draft(count, chances) for place, count in enumerate(planned)]
        ran = sum(count for count, _ in drafted)
        true = curve(batch + ran)
        if counts is not None:
            told = true * max(0.7, noises.gauss(1.0, noise)) * (5.0 if noises.random() < outliers else 1.0)
            counts.measured(batch + ran, batch, ran, told)
        for place, (count, right) in enumerate(drafted):
            if counts is not None and planned[place]:
                counts.verified(names[place], planned[place], count, right)
            done.tokens += 1 + right
            left[place] -= 1 + right
            if left[place] <= 0:
                if counts is not None:
                    counts.forget(names[place])
                names[place], left[place], serial = f"{serial}", length, serial + 1
        done.seconds += true
        done.steps += 1
        done.drafts += ran
    return done


def of_both(first: Text, second: Text) -> Texts:
    """Every other answer."""
    return lambda place, time: second if place % 2 else first


def turning(first: Text, second: Text) -> Texts:
    """The one in the first half of the run, the other one in the second."""
    return lambda place, time: first if time < 0.5 else second


TEXTS: dict[str, Texts] = {
    **{f"p {str(right).lstrip('0')}": all_alike(Text(right)) for right in (0.1, 0.2, 0.4, 0.6, 0.8, 0.95)},
    "silent .2": all_alike(Text(0.3, speaks=0.2, goes_on=0.7)),
    "silent .5": all_alike(Text(0.6, speaks=0.5, goes_on=0.8)),
    "copy": all_alike(Text(0.97, speaks=0.6, goes_on=0.97)),
    "mixed": of_both(Text(0.15), Text(0.9)),
    "turns up": turning(Text(0.1), Text(0.9)),
    "turns down": turning(Text(0.9), Text(0.1)),
}
FIXED = (0, 1, 2, 3, 4, 6, 8, 12, 16)
STEPS = 2000
"""Of a run without drafts that lasts as long as the best one with a fixed count."""


@dataclass(frozen=True)
class Comparison:
    """Tokens per second of chosen counts, relatively."""

    best: int
    """The fixed count with most tokens per second."""
    gain: float
    """Of that one over none."""
    of_best: float
    of_off: float
    drafts_per_step: float


def counts_of(fixed: int) -> DraftCounts | None:
    """None: no drafts."""
    return FixedDraftCounts(fixed, MOST_PER_STEP) if fixed else None


def compare(curve: Curve, batch: int, texts: Texts, steps: int = STEPS, seed: int = SEED) -> Comparison:
    """Chosen counts and fixed ones, over as many tokens. The two best of a shorter run are tried in full."""

    def rate_of(fixed: int, tokens: int) -> float:
        return run(counts_of(fixed), batch, curve, texts, tokens=tokens, seed=seed).rate

    off = rate_of(0, batch * 100)
    rough = {fixed: rate_of(fixed, batch * steps // 3) for fixed in FIXED}
    tokens = int(batch * steps * max(rough.values()) / off)
    close = sorted(FIXED, key=lambda fixed: -rough[fixed])[:2]
    rates = {fixed: rate_of(fixed, tokens) for fixed in close}
    best = max(close, key=lambda fixed: rates[fixed])
    chosen = run(AdaptiveDraftCounts(MOST, MOST_PER_STEP), batch, curve, texts, tokens=tokens, seed=seed)
    return Comparison(
        best, rates[best] / off, chosen.rate / rates[best], chosen.rate / off, chosen.drafts / chosen.steps
    )


def main() -> None:
    """A table of all cases: the worst of each curve and batch."""
    parser = argparse.ArgumentParser(prog="python -m tests.scheduling.draft_simulation", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=SEED, help="another one is a test of what was chosen with this")
    seed = parser.parse_args().seed
    print("| curve | requests | best count (gain) | of off, at least | of best fixed, at least, in |")
    print("|---|---|---|---|---|")
    for name, curve in CURVES.items():
        for batch in (1, 4, 16, 32, 64):
            seen = {text: compare(curve, batch, texts, seed=seed) for text, texts in TEXTS.items()}
            worst = min(seen, key=lambda text: seen[text].of_best)
            top = max(seen.values(), key=lambda each: each.gain)
            print(
                f"| {name} | {batch} | {top.best} ({top.gain:.2f}) | {min(each.of_off for each in seen.values()):.3f} "
                f"| {seen[worst].of_best:.3f} {worst} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
