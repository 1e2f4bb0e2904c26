"""Where each token stands in the text, and how tokens are spelled in logprobs."""

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from octavo.request.outputs import LogprobRow
from octavo.server.serving_engine import TextCodec

LOWEST_LOGPROB = -9999.0
"""JSON knows no infinity."""


@dataclass(frozen=True)
class ScoredToken:
    """One position with its logprobs, spelled out."""

    token_id: int
    spelling: bytes
    offset: int
    """Characters of text before this token."""
    logprob: float | None
    """None for the first prompt token, which nothing predicts."""
    top: tuple[tuple[bytes, float, int], ...]
    """(spelling, logprob, token id) of the most probable tokens, best first; or of the token and those that were
    named."""


class TokenTexts:
    """Spells tokens one after another and tracks how many characters they have made.

    bytes:   F0 9F | 98 80 | 21        tokens 0 and 1 make one character together, so both
    offsets:   0       0     1         start at offset 0
    """

    def __init__(
        self,
        tokenizer: TextCodec,
        num_top: int,
        *,
        skip_special: bool,
        start: int = 0,
        as_ids: bool = False,
        named: bool = False,
    ) -> None:
        """
        Args:
            as_ids: spell tokens as `token_id:7`.
            named: rows of the answer list ids that were named, all of which are to be shown.
        """
        self._tokenizer = tokenizer
        self._as_ids = as_ids
        self._named = named
        self._num_top = num_top
        self._skip_special = skip_special
        self._reader = codecs.getincrementaldecoder("utf-8")("replace")
        self._length = start

    def score(self, token_ids: Iterable[int], rows: Iterable[LogprobRow | None]) -> list[ScoredToken]:
        """The next tokens with their logprobs."""
        return [self._score(token_id, row, named=self._named) for token_id, row in zip(token_ids, rows, strict=True)]

    def score_prompt(self, token_ids: Sequence[int], rows: Iterable[LogprobRow | None], text: str) -> list[ScoredToken]:
        """A prompt's tokens, to be called first. Offsets are set so that the last token ends where `text` does: a
        tokenizer may put a space in front that the text does not have."""
        scored = [self._score(token_id, row, named=False) for token_id, row in zip(token_ids, rows, strict=True)]
        surplus, self._length = self._length - len(text), len(text)
        return [replace(token, offset=max(0, token.offset - surplus)) for token in scored]

    def _score(self, token_id: int, row: LogprobRow | None, *, named: bool) -> ScoredToken:
        spell, offset = self._spell, self._length
        self._advance(token_id)
        if row is None:
            return ScoredToken(token_id, spell(token_id), offset, None, ())
        shown = all_tokens(row) if named else best_tokens(row, self._num_top)
        top = tuple((spell(i), max(logprob, LOWEST_LOGPROB), i) for i, logprob in shown)
        return ScoredToken(token_id, spell(token_id), offset, max(row.logprobs[0], LOWEST_LOGPROB), top)

    def _spell(self, token_id: int) -> bytes:
        return f"token_id:{token_id}".encode() if self._as_ids else self._tokenizer.token_bytes(token_id)

    def _advance(self, token_id: int) -> None:
        if not (self._skip_special and self._tokenizer.is_special(token_id)):
            self._length += len(self._reader.decode(self._tokenizer.token_bytes(token_id)))


def all_tokens(row: LogprobRow) -> list[tuple[int, float]]:
    """All tokens of a row, each once, in its order."""
    return list(dict(zip(row.token_ids, row.logprobs, strict=True)).items())


def best_tokens(row: LogprobRow, count: int) -> list[tuple[int, float]]:
    """The `count` most probable tokens of a row; ties go to the lower id."""
    unique = dict(zip(row.token_ids, row.logprobs, strict=True))
    return sorted(unique.items(), key=lambda pair: (-pair[1], pair[0]))[:count]
