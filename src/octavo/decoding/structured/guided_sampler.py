"""A sampler that keeps answers in their shapes."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from octavo.decoding.structured.backend import CompiledGrammar, mask_words
from octavo.decoding.structured.guide import Guide
from octavo.decoding.structured.side_thread import SideThread
from octavo.errors import RequestFailedError
from octavo.execution.protocols import Float32, Int32, SampledRows, Sampler, TokenMasks
from octavo.request.outputs import LogprobRow
from octavo.request.params import SamplingParams
from octavo.request.structured import StructuredSpec


class GrammarSource(Protocol):
    """Where compiled grammars are kept."""

    def of(self, spec: StructuredSpec) -> CompiledGrammar:
        """The grammar of a live request. Raises RequestFailedError if there is none."""
        ...

    def forget(self, spec: StructuredSpec) -> None:
        """Nobody new is to follow this grammar: an answer has failed by it."""
        ...


class _Run(NamedTuple):
    """The rows of one answer in a sampling call: mostly one, with drafts one more for each."""

    guide: Guide
    first: int
    drafts: Sequence[int]


class _Masks:
    """Rows of allowed tokens for a sampling call, while they are filled and after."""

    def __init__(self, runs: list[_Run], words: Int32) -> None:
        """
        Args:
            words: `[at least rows of the runs, words]`, to be written.
        """
        self.guides = {run.first + i: run.guide for run in runs for i in range(1 + len(run.drafts))}
        """Row of logits -> whose mask it gets."""
        self._runs = runs
        self._words = words
        self.problems: dict[int, str] = {}
        """Row -> why its answer cannot go on."""
        self.cut_rows: list[int] = []
        """Rows behind which their runs end, whatever is drawn."""

    def fill(self) -> None:
        """Writes the masks; for one thread beside the step's."""
        start = 0
        for guide, first, drafts in self._runs:
            stop = start + 1 + len(drafts)
            try:
                filled = guide.fill_masks(self._words[start:stop], drafts)
            except RequestFailedError as error:
                self.problems[first] = str(error)
                filled = 1
            if filled <= len(drafts):
                self.cut_rows.append(first + filled - 1)
            start = stop

    def of_rows(self, num_rows: int) -> TokenMasks:
        """The masks as a sampler takes them. A row that cannot go on has none: what is drawn for it does not count."""
        rows = np.full(num_rows, -1, np.int32)
        for mask, row in enumerate(self.guides):
            rows[row] = -1 if row in self.problems else mask
        return TokenMasks(self._words[: len(self.guides)], rows)


class GuidedSampler:
    """A `Sampler`: another one draws, under masks where a request asked for an answer of a given shape.

        thread of the steps    prepare | forward ............ | sample: wait, draw, follow | ...
        thread of the masks            | fill, row after row  |

    What a row's mask allows depends on its answer alone. Rows without a shape are drawn as by the other sampler.
    """

    def __init__(self, sampler: Sampler, grammars: GrammarSource, vocab_size: int) -> None:
        """`vocab_size`: that of the tokenizer; the masks know no ids beyond it."""
        self._sampler = sampler
        self._grammars = grammars
        self._guides: dict[int, Guide] = {}
        """By slot."""
        self._words = np.zeros((0, mask_words(vocab_size)), np.int32)
        self._masks: _Masks | None = None
        """Of the rows that `prepare` has named, until they are drawn."""
        self._thread: SideThread[None] = SideThread("octavo-masks")

    def add(
        self,
        slot: int,
        params: SamplingParams,
        eos_token_ids: Sequence[int],
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
    ) -> None:
        """See `Sampler`.

        Raises:
            RequestFailedError: the grammar is not there, or what stands of the answer is not of its shape.
        """
        self._settle()
        spec = params.structured_outputs
        guide = None
        if spec is not None:
            guide = Guide(self._grammars.of(spec), spec, params, eos_token_ids, output_token_ids)
        self._sampler.add(slot, params, eos_token_ids, prompt_token_ids, output_token_ids)
        if guide is not None:
            self._guides[slot] = guide

    def remove(self, slot: int) -> None:
        """See `Sampler`."""
        self._settle()
        self._guides.pop(slot, None)
        self._sampler.remove(slot)

    def prepare(self, slots: Int32, drafts: Int32 | None = None) -> None:
        """See `Sampler`. Begins to fill the masks."""
        self._settle()
        if not self._guides:
            return
        runs = self._runs(slots.tolist(), [-1] * len(slots) if drafts is None else drafts.tolist())
        if runs:
            self._masks = _Masks(runs, self._room_for(sum(1 + len(run.drafts) for run in runs)))
            self._thread.begin(self._masks.fill)

    def _runs(self, slots: list[int], drafts: list[int]) -> list[_Run]:
        """The rows of answers that follow a shape."""
        runs: list[_Run] = []
        row = 0
        while row < len(slots):
            last = row
            while drafts[last] >= 0:
                last += 1
            guide = self._guides.get(slots[row])
            if guide is not None and not guide.is_over:
                runs.append(_Run(guide, row, drafts[row:last]))
            row = last + 1
        return runs

    def num_worth_running(self, slot: int, drafts: Sequence[int]) -> int:
        """See `Sampler`. What is not of the answer's shape cannot be drawn."""
        self._settle()
        count = self._sampler.num_worth_running(slot, drafts)
        guide = self._guides.get(slot)
        return count if guide is None or guide.is_over else guide.num_worth_running(drafts[:count])

    def sample(self, logits: Float32, slots: Int32, masks: TokenMasks | None = None) -> SampledRows:
        """See `Sampler`; for the slots of the last `prepare`, and without `masks`: they are made here.

        Raises:
            ValueError: masks are given.
        """
        if masks is not None:
            raise ValueError("a guided sampler makes its masks itself")
        own = self._settle()
        if own is None:
            return self._sampler.sample(logits, slots)
        return self._follow_all(own, self._sampler.sample(logits, slots, own.of_rows(len(slots))))

    def verify(self, logits: Float32, slots: Int32, drafts: Int32, masks: TokenMasks | None = None) -> SampledRows:
        """See `Sampler`; for the rows of the last `prepare`, and without `masks`: they are made here.

        Raises:
            ValueError: masks are given.
        """
        if masks is not None:
            raise ValueError("a guided sampler makes its masks itself")
        own = self._settle()
        if own is None:
            return self._sampler.verify(logits, slots, drafts)
        return self._follow_all(own, self._verify(logits, slots, drafts, own))

    def _verify(self, logits: Float32, slots: Int32, drafts: Int32, own: _Masks) -> SampledRows:
        """Rows behind a cut have no masks: they become runs of slots of nobody, that is, are left out."""
        if not own.cut_rows:
            return self._sampler.verify(logits, slots, drafts, own.of_rows(len(slots)))
        drafts, kept = drafts.copy(), np.ones(len(slots), np.bool_)
        for row in own.cut_rows:
            last = row + int(np.argmax(drafts[row:] < 0))
            drafts[row], kept[row + 1 : last + 1] = -1, False
        given = own.of_rows(len(slots))
        some = self._sampler.verify(logits[kept], slots[kept], drafts[kept], TokenMasks(given.words, given.rows[kept]))
        return _spread(some, np.flatnonzero(kept).astype(np.int32), len(slots))

    def _follow_all(self, own: _Masks, sampled: SampledRows) -> SampledRows:
        for row, guide in own.guides.items():
            counts = sampled.token_ids[row] >= 0 or row in sampled.errors
            if counts or row in own.problems:
                self._follow(row, guide, sampled, own.problems.get(row))
        return sampled

    def score(self, logits: Float32, targets: Int32, num_logprobs: int) -> list[LogprobRow]:
        """See `Sampler`."""
        return self._sampler.score(logits, targets, num_logprobs)

    def forced_tokens(self, slot: int) -> list[int]:
        """What must come next in a slot but for how the text is cut into tokens: see `Guide.forced_tokens`. To be asked
        before `prepare`: masks that are being made are dropped."""
        guide = self._guides.get(slot)
        if guide is None or guide.is_over:
            return []
        self._settle()
        return guide.forced_tokens()

    def _follow(self, row: int, guide: Guide, sampled: SampledRows, problem: str | None) -> None:
        """Takes note of what was drawn for a row, unless that failed before."""
        if problem is None and row in sampled.errors:
            return
        try:
            if problem is not None:
                raise RequestFailedError(problem)
            if guide.follow(int(sampled.token_ids[row])):
                sampled.completed.append(row)
        except RequestFailedError as error:
            guide.is_over = True
            self._grammars.forget(guide.spec)
            sampled.token_ids[row] = -1
            sampled.errors[row] = str(error)
            sampled.unfit.append(row)

    def _settle(self) -> _Masks | None:
        """Waits for the masks that are being filled, whose matchers nobody else may touch until then, and takes
        them."""
        masks, self._masks = self._masks, None
        if masks is not None:
            self._thread.result()
        return masks

    def _room_for(self, num_masks: int) -> Int32:
        if len(self._words) < num_masks:
            self._words = np.zeros((max(num_masks, 2 * len(self._words)), self._words.shape[1]), np.int32)
        return self._words


def _spread(some: SampledRows, rows: Int32, num_rows: int) -> SampledRows:
    """What was sampled of some rows among all; the others do not count."""
    token_ids = np.full(num_rows, -1, np.int32)
    token_ids[rows] = some.token_ids
    listed = rows.tolist()
    logprobs: list[LogprobRow | None] = [None] * num_rows if some.logprobs else []
    for row, entry in zip(listed, some.logprobs, strict=False):
        logprobs[row] = entry
    errors = {listed[row]: problem for row, problem in some.errors.items()}
    return SampledRows(token_ids, logprobs, errors, [listed[row] for row in some.unfit])
