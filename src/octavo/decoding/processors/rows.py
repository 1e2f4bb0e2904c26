"""The rows of a sampling call whose requests have logits processors, edited before the sampler draws from them."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from octavo.decoding.processors.contract import LogitsProcessor, ProcessedRequest
from octavo.errors import InvalidRequestError, OctavoError
from octavo.execution.protocols import Float32, Int32
from octavo.request.params import SamplingParams

log = logging.getLogger(__name__)

Requests = dict[str, ProcessedRequest]
"""One request as each of its processors sees it, in the order in which these apply."""


@dataclass
class EditedRows:
    """Logits to draw from in place of the model's."""

    logits: Float32
    """[edited rows, valid_vocab_size]; NaN where a processor has failed."""
    rows: Int32
    """[rows of the call] which of them a row has; -1: none."""
    errors: dict[int, str] = field(default_factory=dict)
    """Row of the call -> what went wrong with its processors."""


class ProcessorRows:
    """Which slots have processors, with their tokens so far; runs processors over the rows of these slots, one call of
    each processor for all."""

    def __init__(self, processors: Mapping[str, LogitsProcessor], valid_vocab_size: int) -> None:
        """
        Args:
            processors: by name, in the order in which they apply.
        """
        self._processors = processors
        self._valid_vocab_size = valid_vocab_size
        self._by_slot: dict[int, Requests] = {}
        self._outputs: dict[int, list[int]] = {}

    def add(self, slot: int, params: SamplingParams, prompt: Sequence[int], outputs: Sequence[int]) -> None:
        """Takes a request in, if it names any processor.

        Raises:
            InvalidRequestError: it names one that there is not.
        """
        asked = params.logits_processors
        if not asked:
            return
        check_names(asked, self._processors)
        so_far = self._outputs[slot] = list(outputs)
        self._by_slot[slot] = {
            name: ProcessedRequest(asked[name], prompt, so_far) for name in self._processors if name in asked
        }

    def remove(self, slot: int) -> None:
        """Forgets a slot's request, if it has any here."""
        self._by_slot.pop(slot, None)
        self._outputs.pop(slot, None)

    def push(self, slots: Int32, token_ids: Int32) -> None:
        """Notes what has been sampled; -1 where a row failed."""
        if not self._outputs:
            return
        for slot, token_id in zip(slots.tolist(), token_ids.tolist(), strict=True):
            if slot in self._outputs and token_id >= 0:
                self._outputs[slot].append(token_id)

    def edit(self, logits: Float32, slots: Int32, drafts: Int32 | None = None) -> EditedRows | None:
        """What the processors make of the rows of `logits` `[rows, vocab_size]`; None where no row has any.

        Args:
            drafts: see `Sampler.verify`; a row behind some is edited as if they were right.

        Rows that hold a NaN are left to the sampler, whose message says that it is the model's.
        """
        if not self._by_slot:
            return None
        listed = slots.tolist()
        requests_of = self._rows(listed, drafts)
        edited = [row for row, slot in enumerate(listed) if slot in self._by_slot]
        if not edited:
            return None
        rows = np.full(len(listed), -1, np.int32)
        rows[edited] = np.arange(len(edited), dtype=np.int32)
        result = EditedRows(np.array(logits[edited, : self._valid_vocab_size], np.float32, order="C"), rows)
        broken = set(rows_with_nan(result.logits).tolist())
        for name, processor in self._processors.items():
            places = [
                place
                for place, row in enumerate(edited)
                if place not in broken and row not in result.errors and name in requests_of[row]
            ]
            requests = [requests_of[edited[place]][name] for place in places]
            for place, problem in _apply(name, processor, requests, result.logits, places):
                result.logits[place] = np.nan
                result.errors[edited[place]] = problem
        return result

    def _rows(self, slots: list[int], drafts: Int32 | None) -> list[Requests]:
        """[rows] what the processors are shown of each."""
        if drafts is None:
            return [self._by_slot.get(slot, {}) for slot in slots]
        requests: list[Requests] = []
        guessed: list[int] = []
        for slot, draft in zip(slots, [-1, *drafts.tolist()[:-1]], strict=True):
            guessed = [] if draft < 0 else [*guessed, draft]
            known = self._by_slot.get(slot, {})
            requests.append({name: _behind(request, guessed) for name, request in known.items()} if guessed else known)
        return requests


def _behind(request: ProcessedRequest, drafts: list[int]) -> ProcessedRequest:
    return replace(request, output_token_ids=[*request.output_token_ids, *drafts])


def rows_with_nan(logits: Float32) -> Int32:
    """Rows that hold a NaN, ascending: where the maximum is one. One pass, no copy."""
    with np.errstate(invalid="ignore"):
        return np.flatnonzero(np.isnan(logits.max(axis=1))).astype(np.int32)


def check_names(asked: Mapping[str, object], known: Mapping[str, object]) -> None:
    """
    Raises:
        InvalidRequestError: a processor that the engine was not started with.
    """
    for name in asked:
        if name not in known:
            loaded = f"this engine has {', '.join(known)}" if known else "this engine was started without any"
            raise InvalidRequestError("logits_processors", name, f"is no logits processor here; {loaded}")


def _apply(
    name: str,
    processor: LogitsProcessor,
    requests: Sequence[ProcessedRequest],
    logits: Float32,
    places: Sequence[int],
) -> list[tuple[int, str]]:
    """Runs one processor over some rows of `logits`; returns (place, problem) of those at which it fails. All together
    first; if that raises, each alone."""
    if not places:
        return []
    try:
        part = logits[places]
        processor.process(requests, part)
    except Exception as error:
        if len(places) == 1:
            return [(places[0], _problem(name, error))]
        pairs = zip(requests, places, strict=True)
        return [failed for request, place in pairs for failed in _apply(name, processor, [request], logits, [place])]
    logits[places] = part
    return [(places[row], f"the logits processor {name!r} made a logit NaN") for row in rows_with_nan(part).tolist()]


def _problem(name: str, error: Exception) -> str:
    """What the client is told; the rest goes into the log."""
    log.error("the logits processor %r failed at a request", name, exc_info=error)
    if isinstance(error, OctavoError):
        return f"the logits processor {name!r} failed: {error}"
    return f"the logits processor {name!r} failed ({type(error).__name__}); the engine's log says more"
