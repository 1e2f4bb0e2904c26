"""The native sampler behind the `Sampler` protocol."""

from collections.abc import Mapping, Sequence

import numpy as np

from octavo import _native
from octavo.decoding.budgets import ReasoningBudgets
from octavo.decoding.processors.contract import LogitsProcessor
from octavo.decoding.processors.rows import EditedRows, ProcessorRows
from octavo.errors import InvalidRequestError
from octavo.execution.protocols import Float32, Int32, SampledRows, TokenMasks
from octavo.request.outputs import LogprobRow
from octavo.request.params import MAX_LOGPROBS, SamplingParams, validate_against_vocabulary

_NAN, _NO_LOGIT = 1, 3  # RowStatus of csrc/sampling/sampler.h
_NO_LOGPROBS = -1


class NativeSampler:
    """Samples batches of rows in C++; owns parameters, token counts and noise positions of all slots.

    Every row is computed alone, by integer sums and fixed float sequences, so its token and its logprobs have the
    same bits whatever the other rows, the threads or the instruction set. Calls must not overlap. The logits are read
    only.
    """

    def __init__(
        self,
        pool: _native.ThreadPool,
        vocab_size: int,
        valid_vocab_size: int,
        isa: str,
        processors: Mapping[str, LogitsProcessor] | None = None,
    ) -> None:
        """
        Args:
            pool: threads that share the rows; may serve the executor too.
            vocab_size: columns of the logits.
            valid_vocab_size: the tokenizer's vocabulary; ids from here on are padding of the head, never sampled.
            isa: "auto", "amx", "avx512", "avx2" or "portable".
            processors: plug-ins that requests may name, in the order in which they apply.

        Raises:
            ValueError: sizes out of range, or an `isa` this processor does not have.
        """
        self.vocab_size = vocab_size
        self.valid_vocab_size = valid_vocab_size
        self._native = _native.Sampler(pool, vocab_size, valid_vocab_size, isa)
        self._params: dict[int, SamplingParams] = {}
        self._ending_ids: dict[int, frozenset[int]] = {}
        """Slot -> tokens that end its request."""
        self._processors = ProcessorRows(processors or {}, valid_vocab_size)
        self._budgets = ReasoningBudgets()

    def add(
        self,
        slot: int,
        params: SamplingParams,
        eos_token_ids: Sequence[int],
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
    ) -> None:
        """Starts a request in a free slot; given its outputs so far, a preempted one goes on as if never stopped.

        Raises:
            InvalidRequestError: a token id outside the vocabulary, a logits processor that there is not, or no seed for
                a request that is not greedy.
            ValueError: the slot is taken.
        """
        validate_against_vocabulary(params, self.valid_vocab_size, MAX_LOGPROBS)
        native = native_params(params, eos_token_ids, self.valid_vocab_size)
        self._native.add(slot, native, list(prompt_token_ids), list(output_token_ids))
        self._params[slot] = params
        self._ending_ids[slot] = frozenset((*eos_token_ids, *params.stop_token_ids))
        self._budgets.add(slot, params, output_token_ids)
        self._processors.add(slot, params, prompt_token_ids, output_token_ids)

    def remove(self, slot: int) -> None:
        """Forgets the request in a slot. Raises ValueError if there is none."""
        self._native.remove(slot)
        del self._params[slot], self._ending_ids[slot]
        self._budgets.remove(slot)
        self._processors.remove(slot)

    def prepare(self, slots: Int32, drafts: Int32 | None = None) -> None:
        """See `Sampler`. There is nothing to do."""

    def num_worth_running(self, slot: int, drafts: Sequence[int]) -> int:
        """See `Sampler`. Ids that are none, or not allowed, cannot be drawn, and behind an end nothing is."""
        params, ends = self._params[slot], self._ending_ids[slot]
        for count, token_id in enumerate(drafts):
            if token_id in ends or not 0 <= token_id < self.valid_vocab_size:
                return count
            if params.allowed_token_ids is not None and token_id not in params.allowed_token_ids:
                return count
        return len(drafts)

    def sample(self, logits: Float32, slots: Int32, masks: TokenMasks | None = None) -> SampledRows:
        """Samples row i of `logits` `[rows, vocab_size]` for the request in `slots[i]` and counts the token as output.

        Raises:
            ValueError: wrong shapes, an empty slot, one slot twice, or a mask that is not there.
        """
        return self._draw(logits, slots, None, masks)

    def verify(self, logits: Float32, slots: Int32, drafts: Int32, masks: TokenMasks | None = None) -> SampledRows:
        """See `Sampler`. Each row's bounds are those behind its drafts, and only if these are right it is drawn.

        Raises:
            ValueError: as of `sample`; rows of another slot behind a draft.
        """
        return self._draw(logits, slots, drafts, masks)

    def _draw(self, logits: Float32, slots: Int32, drafts: Int32 | None, masks: TokenMasks | None) -> SampledRows:
        words, mask_rows = (None, None) if masks is None else (masks.words, masks.rows)
        edited, forced = self._processors.edit(logits, slots, drafts), self._budgets.forced(slots, drafts)
        replaced, replaced_rows = (None, None) if edited is None else (edited.logits, edited.rows)
        token_ids, failures, columns = self._native.sample(
            logits, slots, words, mask_rows, replaced, replaced_rows, forced, drafts
        )
        self._budgets.push(slots, token_ids)
        self._processors.push(slots, token_ids)
        errors = {
            row: self._explain(status, int(slots[row]), has_mask=masks is not None and bool(masks.rows[row] >= 0))
            for row, status in failures
        }
        if edited is not None:
            errors |= {row: problem for row, problem in edited.errors.items() if row in errors}
        unfit = [row for row, status in failures if status not in (_NAN, _NO_LOGIT)]
        return SampledRows(token_ids, [] if columns is None else _logprob_rows(columns), errors, unfit)

    def score(self, logits: Float32, targets: Int32, num_logprobs: int) -> list[LogprobRow]:
        """Logprobs of given tokens, one row of `logits` `[rows, vocab_size]` each; touches no slot.

        A row without a distribution (a NaN, or all -inf) gives the logprob NaN and rank 0.

        Raises:
            ValueError: wrong shapes, a target that is no token id, a negative count.
        """
        if num_logprobs < 0:
            raise ValueError(f"num_logprobs={num_logprobs} must not be negative")
        rows = _logprob_rows(self._native.score(logits, targets, num_logprobs))
        return [row for row in rows if row is not None]

    def adjusted_logits(self, logits: Float32, slot: int, mask: Int32 | None = None) -> Float32:
        """One row `[vocab_size]` as the slot's next draw sees it, before temperature: `[valid_vocab_size]`."""
        return self._native.adjust(self._processed(logits, slot), slot, mask)

    def candidates(self, logits: Float32, slot: int, mask: Int32 | None = None) -> list[int]:
        """Token ids, ascending, among which the slot's next draw would choose from one row `[vocab_size]`."""
        return self._native.candidates(self._processed(logits, slot), slot, mask)

    def _processed(self, logits: Float32, slot: int) -> Float32:
        """One row `[vocab_size]` after the slot's processors."""
        edited = self._processors.edit(logits[None], np.array([slot], np.int32))
        return logits if edited is None else _widened(edited, logits)

    def _explain(self, status: int, slot: int, *, has_mask: bool) -> str:
        """What is wrong with a row; where a processor is at fault, its own words come in place of these."""
        if status == _NAN:
            return "the model's logits hold a NaN, so no token can be sampled"
        if status == _NO_LOGIT:
            return "all of the model's logits are -inf, so no token can be sampled"
        fields = ["the shape asked for"] * has_mask + masking_fields(self._params[slot])
        return f"no token is left to sample: {' and '.join(fields)} mask all of them"


def native_params(params: SamplingParams, eos_token_ids: Sequence[int], valid_vocab_size: int) -> _native.SlotParams:
    """The native form of a request's parameters.

    Raises:
        InvalidRequestError: the request is not greedy and has no seed.
    """
    if params.seed is None and not params.greedy:
        raise InvalidRequestError("seed", None, "must be set by now; the client draws one where the user gave none")
    native = _native.SlotParams()
    native.greedy = params.greedy
    native.temperature = params.temperature
    native.top_k = params.top_k
    native.top_p = params.top_p
    native.min_p = params.min_p
    native.repetition_penalty = params.repetition_penalty
    native.presence_penalty = params.presence_penalty
    native.frequency_penalty = params.frequency_penalty
    native.seed = params.seed or 0
    native.min_tokens = params.min_tokens
    native.num_logprobs = _NO_LOGPROBS if params.logprobs is None else params.logprobs
    native.logprob_token_ids = list(params.logprob_token_ids)
    native.logit_bias = list((params.logit_bias or {}).items())
    native.allowed_token_ids = list(params.allowed_token_ids or ())
    native.bad_words = [list(word) for word in params.bad_words_token_ids]
    native.stop_token_ids = [i for i in (*eos_token_ids, *params.stop_token_ids) if 0 <= i < valid_vocab_size]
    return native


def _widened(edited: EditedRows, logits: Float32) -> Float32:
    """The one edited row with the padding of the row that it was."""
    (row,) = edited.logits
    return np.concatenate((row, logits[len(row) :]))


def masking_fields(params: SamplingParams) -> list[str]:
    """The request's fields that can mask tokens, to name in an error."""
    masks = {
        "allowed_token_ids": params.allowed_token_ids is not None,
        "bad_words": bool(params.bad_words_token_ids),
        "min_tokens": params.min_tokens > 0,
        "logits_processors": bool(params.logits_processors),
    }
    return [field for field, is_set in masks.items() if is_set] + ["the model's own -inf logits"]


def _logprob_rows(columns: tuple[Int32, Float32, Int32, Int32]) -> list[LogprobRow | None]:
    """One entry per row, None where nothing was asked; an empty list if no row has any."""
    token_ids, logprobs, counts, ranks = columns
    if not counts.any():
        return []
    rows = zip(token_ids.tolist(), logprobs.tolist(), counts.tolist(), ranks.tolist(), strict=True)
    return [LogprobRow(ids[:n], values[:n], rank) if n else None for ids, values, n, rank in rows]
