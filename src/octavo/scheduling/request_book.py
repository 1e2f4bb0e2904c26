"""The account of a request while it lives: told of each step that is planned for it and of each turn of its fate."""

import msgspec

from octavo.kv.spec import KVLayout
from octavo.request.account import MAX_CHUNK_RUNS, Account, ChunkRun, Phase, WorkDone
from octavo.scheduling.block_curve import BlockCurve
from octavo.scheduling.phase_clock import PhaseClock
from octavo.scheduling.work_count import Reaches, WorkCount

_KINDS = (Phase.PREFILL, Phase.RECOMPUTE, Phase.DECODE)


class _Run:
    """A `ChunkRun` that still grows."""

    __slots__ = ("first_step", "last_step", "num_steps", "num_tokens", "phase", "size", "start")

    def __init__(self, phase: Phase, start: int, size: int, step: int) -> None:
        self.phase, self.start, self.size, self.first_step = phase, start, size, step
        self.num_steps = self.num_tokens = 0
        self.last_step = step


class RequestBook:
    """Phases, chunks, work and blocks of one request. Whoever decodes one token after the other is booked in a few
    additions per step: what follows from the place in the sequence is counted when the row of steps ends.

    place    0 ................ prompt ........ row start ........ row end
    counted  chunk by chunk            | steps of one token each, not counted yet |
    """

    __slots__ = (
        "_chunks",
        "_num_prompt_tokens",
        "_row_share",
        "_row_start",
        "_row_step",
        "_samples",
        "_works",
        "clock",
        "curve",
        "row_end",
        "work",
    )

    def __init__(self, num_prompt_tokens: int, arrival_s: float, reaches: Reaches, *, samples: bool = True) -> None:
        """
        Args:
            samples: whether tokens are wanted, and no vector.
        """
        self.clock = PhaseClock(arrival_s)
        self.curve = BlockCurve()
        self._num_prompt_tokens = num_prompt_tokens
        self._samples = samples
        self._works = {kind: WorkCount(reaches) for kind in _KINDS}
        self.work = self._works[Phase.PREFILL].done
        """What its newest step counts for."""
        self._chunks: list[_Run] = []
        self._row_start = self._row_step = -1
        self.row_end = -1
        """Place behind the row of single tokens that the next step may lengthen; -1: there is none."""
        self._row_share = 0.0

    def planned(
        self,
        step: int,
        start: int,
        num_tokens: int,
        num_drafts: int,
        num_sampled: int,
        num_recomputed: int,
        part: float,
    ) -> None:
        """A step runs tokens from place `start` on, and drafts behind them. Where it lengthens a row of single tokens,
        as most steps do, `lengthen` does the same for less.

        Args:
            num_sampled: rows of these whose logits are made.
            num_recomputed: tokens of these that had been computed before.
            part: of the rows of the step.
        """
        self._end_row()
        kind = Phase.DECODE if start >= self._num_prompt_tokens else Phase.PREFILL
        if num_recomputed:
            kind = Phase.RECOMPUTE
        self.work = self._works[kind].done
        self._turn_to_run(kind, start, num_tokens, step)
        if kind is Phase.DECODE and num_tokens == num_sampled == 1:
            self._row_start = start
            self.lengthen(step, start + 1, part)
            return
        num_rows = num_tokens + num_drafts
        self._works[kind].add(num_rows, start + num_rows, num_sampled if self._samples else 0)
        self._note_steps(1, num_tokens, step, part)

    def lengthen(self, step: int, end: int, part: float) -> None:
        """A step runs the token at `row_end`, which thereby becomes `end`: one that is sampled, without drafts."""
        self.row_end = end
        self._row_share += part
        self._row_step = step

    def _end_row(self) -> None:
        """Counts what the row of single tokens comes to."""
        count = self.row_end - self._row_start
        if count > 0:
            self._works[Phase.DECODE].add_row(self._row_start, self.row_end)
            self._note_steps(count, count, self._row_step, self._row_share)
        self._row_start = self.row_end = -1
        self._row_share = 0.0

    def _note_steps(self, num_steps: int, num_tokens: int, last_step: int, share: float) -> None:
        run, work = self._chunks[-1], self.work
        run.num_steps += num_steps
        run.num_tokens += num_tokens
        run.last_step = last_step
        work.num_steps += num_steps
        work.share += share

    def _turn_to_run(self, kind: Phase, start: int, size: int, step: int) -> None:
        """Has the last of the chunk runs be the one that takes in the next step."""
        runs = self._chunks
        if runs and runs[-1].phase is kind and runs[-1].size == size:
            return
        alike = [run for run in runs if run.phase is kind]
        if not alike or len(runs) < MAX_CHUNK_RUNS - len(_KINDS):
            runs.append(_Run(kind, start, size, step))
            return
        alike[-1].size = 0
        runs.remove(alike[-1])
        runs.append(alike[-1])

    def correct(self, work: WorkDone, planned: tuple[int, int], ran: tuple[int, int]) -> None:
        """A step that was planned with drafts, or behind some, has landed.

        Args:
            work: what it was counted for.
            planned: rows, all sampled or drafts to be verified, and the place behind them.
            ran: the same, as it came.
        """
        if planned != ran:
            count = next(count for count in self._works.values() if count.done is work)
            count.add(*planned, planned[0], sign=-1)
            count.add(*ran, ran[0])

    def account(self, now_s: float) -> Account | None:
        """All of it, as it is now; None: nobody keeps it."""
        self._end_row()
        phases_s, waits_s = self.clock.times(now_s)
        return Account(
            phases_s=phases_s,
            waits_s=waits_s,
            chunks=[_frozen(run) for run in self._chunks],
            work={kind: _copied(count.done) for kind, count in self._works.items() if count.done.num_steps},
            block_seconds=self.curve.block_seconds(now_s),
            blocks=self.curve.samples(),
        )


def _frozen(run: _Run) -> ChunkRun:
    return ChunkRun(run.phase, run.start, run.size, run.num_steps, run.num_tokens, run.first_step, run.last_step)


def _copied(done: WorkDone) -> WorkDone:
    return msgspec.structs.replace(done, num_pairs=list(done.num_pairs), num_read=list(done.num_read))


def reaches_of(layout: KVLayout) -> Reaches:
    """Those of a model's layers, each once."""
    return tuple(dict.fromkeys(spec.reach for group in layout.groups for spec in group.layers))
