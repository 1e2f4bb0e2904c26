"""How much of what the machine allows each op of a model's steps reaches."""

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.bench.bounds import Bound, bound
from octavo.bench.stage_work import StageWork
from octavo.bench.steps import StepCase, StepTimes
from octavo.platform.peaks import Peaks

COLUMNS = ("op", "x", "rows", "ms", "of step", "bound, ms", "ratio", "bound by")


@dataclass(frozen=True)
class OpShare:
    """All ops of one name in one kind of step."""

    op: str
    """Its ops or weights, as the native executor runs them together."""
    count: int
    """In the program: mostly one per layer."""
    rows: int
    """Tokens, or rows whose logits are wanted."""
    seconds: float
    """Together, undisturbed: 10th percentiles."""
    step_share: float
    """Of what all ops take."""
    bound: Bound
    ratio: float
    """`bound.seconds / seconds`: how much of the possible speed was reached."""

    @property
    def cells(self) -> tuple[str, ...]:
        """Under `COLUMNS`."""
        return (
            self.op,
            str(self.count),
            str(self.rows),
            f"{1e3 * self.seconds:.3f}",
            f"{100 * self.step_share:.1f} %",
            f"{1e3 * self.bound.seconds:.3f}",
            f"{100 * self.ratio:.0f} %",
            self.bound.limit.value,
        )


def op_shares(works: Mapping[str, StageWork], case: StepCase, times: StepTimes, peaks: Peaks) -> tuple[OpShare, ...]:
    """The ops of a step, by what they have to do and what they took."""
    shares = []
    for op, stage in works.items():
        seconds, least = times.stages[op], bound(stage.work, peaks)
        rows = case.total_tokens if stage.dim == "tokens" else case.logit_rows
        shares.append(OpShare(op, stage.count, rows, seconds, seconds / times.stages_s, least, least.share(seconds)))
    return tuple(shares)


def as_table(ops: tuple[OpShare, ...]) -> list[str]:
    """For a terminal: a line of headings, and one for each op."""
    rows = [COLUMNS, *(op.cells for op in ops)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(n) for cell, n in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
