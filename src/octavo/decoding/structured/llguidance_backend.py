"""The backend on the `llguidance` library (https://github.com/guidance-ai/llguidance)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from octavo.decoding.structured.backend import WORD_BITS, allow, mask_words
from octavo.decoding.structured.limits import MAX_LEXER_STATES, MAX_ROW_ITEMS
from octavo.decoding.structured.problem import ShapeError
from octavo.decoding.structured.translate import Translation, library_problem, translate
from octavo.decoding.structured.vocabulary import GrammarVocabulary
from octavo.errors import InvalidRequestError, RequestFailedError
from octavo.execution.protocols import Int32
from octavo.request.structured import StructuredSpec

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

_BASE_BYTES = 100_000
_BYTES_PER_CHARACTER = 100


class LLGuidanceBackend:
    """A :class:`GrammarBackend`. The library is loaded, and the vocabulary made its own, by the first compilation."""

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        self._vocabulary = vocabulary
        self._specials: Mapping[str, int] = vocabulary.spelled_specials()
        self._lock = threading.Lock()
        self._tokenizer: LLTokenizer | None = None

    def prepare(self) -> None:
        """See GrammarBackend. The library holds Python's lock while it builds its trie of the vocabulary."""
        self._shared_tokenizer()

    def compile(self, spec: StructuredSpec) -> LLGuidanceGrammar:
        """See GrammarBackend."""
        try:
            return self._compiled(translate(spec, self._specials))
        except ShapeError as error:
            raise InvalidRequestError(spec.field, spec.source or list(spec.choices), str(error)) from None

    def _compiled(self, translation: Translation) -> LLGuidanceGrammar:
        from llguidance import LLMatcher  # noqa: PLC0415

        text = translation.grammar
        matcher = LLMatcher(self._shared_tokenizer(), text, log_level=0, limits=_limits())
        if matcher.is_error():
            raise ShapeError(library_problem(matcher.get_error(), translation))
        compiled = LLGuidanceGrammar(matcher, self._vocabulary.size, _BASE_BYTES + _BYTES_PER_CHARACTER * len(text))
        try:
            compiled.matcher(()).fill_mask(np.zeros(mask_words(self._vocabulary.size), np.int32))
        except RequestFailedError as error:
            raise ShapeError(f"no answer can begin: {error}") from None
        return compiled

    def _shared_tokenizer(self) -> LLTokenizer:
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = library_tokenizer(self._vocabulary)
            return self._tokenizer


class LLGuidanceGrammar:
    """A :class:`CompiledGrammar`."""

    def __init__(self, start: LLMatcher, vocab_size: int, num_bytes: int) -> None:
        self._start = start
        self._vocab_size = vocab_size
        self.num_bytes = num_bytes

    def matcher(self, end_token_ids: tuple[int, ...]) -> LLGuidanceMatcher:
        """See CompiledGrammar."""
        return LLGuidanceMatcher(self._start.deep_copy(), self._vocab_size, end_token_ids)


class LLGuidanceMatcher:
    """A :class:`Matcher`. End tokens never reach the library: it counts them, or does not, depending on whether
    anything else could have come, and then rolls back the wrong tokens."""

    def __init__(
        self, state: LLMatcher, vocab_size: int, end_token_ids: tuple[int, ...], num_text: int = 0, num_ends: int = 0
    ) -> None:
        self._state = state
        self._vocab_size = vocab_size
        self._end_token_ids = end_token_ids
        self._num_text = num_text
        """Tokens that the library has taken."""
        self._num_ends = num_ends
        """End tokens behind them."""
        self._allowed: Int32 | None = None
        """What the library allows here, once asked; never written."""

    @property
    def num_tokens(self) -> int:
        """See Matcher."""
        return self._num_text + self._num_ends

    @property
    def can_end(self) -> bool:
        """See Matcher."""
        return bool(self._state.is_accepting())

    @property
    def is_complete(self) -> bool:
        """See Matcher."""
        return self.can_end and not self._text_mask().any()

    @property
    def is_terminated(self) -> bool:
        """See Matcher."""
        return self._num_ends > 0

    def fill_mask(self, row: Int32) -> None:
        """See Matcher."""
        row[:] = 0 if self.is_terminated else self._text_mask()
        if self.can_end:
            allow(row, self._end_token_ids)

    def accept(self, token_id: int) -> bool:
        """See Matcher."""
        if token_id in self._end_token_ids and self.can_end:
            self._num_ends += 1
            return True
        if self.is_terminated or not 0 <= token_id < self._vocab_size:
            return False
        if self._state.try_consume_tokens([token_id]) != 1:
            self._require_sound()
            return False
        self._num_text += 1
        self._allowed = None
        return True

    def rollback(self, num_tokens: int) -> None:
        """See Matcher."""
        if not 0 <= num_tokens <= self.num_tokens:
            raise ValueError(f"num_tokens={num_tokens}: {self.num_tokens} tokens have been accepted")
        num_ends = min(num_tokens, self._num_ends)
        self._num_ends -= num_ends
        num_text = num_tokens - num_ends
        if num_text:
            self._num_text -= num_text
            self._allowed = None
            self._state.rollback(num_text)
            self._require_sound()

    def forced_tokens(self) -> list[int]:
        """See Matcher."""
        if self.is_terminated:
            return []
        probe = self._state.deep_copy()  # looking ahead moves it
        if not probe.compute_ff_bytes():
            return []
        forced = [token_id for token_id in probe.compute_ff_tokens() if token_id < self._vocab_size]
        return forced[: self._state.validate_tokens(forced)]

    def clone(self) -> LLGuidanceMatcher:
        """See Matcher."""
        copied = LLGuidanceMatcher(
            self._state.deep_copy(), self._vocab_size, self._end_token_ids, self._num_text, self._num_ends
        )
        copied._allowed = self._allowed
        return copied

    def _text_mask(self) -> Int32:
        """The tokens but end tokens that may come next, `[words]`."""
        if self._allowed is None:
            mask = np.frombuffer(self._state.compute_bitmask(), dtype=np.int32)[: mask_words(self._vocab_size)].copy()
            self._require_sound()
            if tail := self._vocab_size % WORD_BITS:  # the library's own end token stands behind the vocabulary
                mask[-1] &= np.int32((1 << tail) - 1)
            if not mask.any() and not self.can_end:
                raise RequestFailedError(f"the answer cannot go on in the shape asked for: {_STOPS['NoExtensionBias']}")
            self._allowed = mask
        return self._allowed

    def _require_sound(self) -> None:
        if self._state.is_error():
            problem = library_problem(self._state.get_error())
            raise RequestFailedError(f"the answer cannot go on in the shape asked for: {_STOPS.get(problem, problem)}")


def library_tokenizer(vocabulary: GrammarVocabulary) -> LLTokenizer:
    """The vocabulary in the library's form, which is a trie of all tokens' bytes; 0.4 s for 150,000."""
    from llguidance import LLTokenizer  # noqa: PLC0415

    end_id = vocabulary.size  # one more token, which no model has: where the answer may end is ours to say
    return LLTokenizer(_Wrapper(vocabulary), n_vocab=end_id + 1, eos_token=end_id)  # type: ignore[arg-type]


def _limits() -> LLParserLimits:
    from llguidance import LLParserLimits  # noqa: PLC0415

    return LLParserLimits(max_items_in_row=MAX_ROW_ITEMS, max_lexer_states=MAX_LEXER_STATES, verbose_errors=False)


_STOPS = {
    "NoExtensionBias": "no token of the vocabulary continues it",
    "ParserTooComplex": "there are too many ways to read it",
    "LexerTooComplex": "its expressions take too many states",
}
"""The library's reasons for giving up -> in words."""

_MAX_KEPT_CUTS, _MAX_KEPT_BYTES = 4096, 200
"""Forced texts of which the tokens are kept, and the length of the longest of them."""

_NO_TEXT = 0xFF
"""No UTF-8 text holds it, and the library takes it for the mark of control tokens."""


class _Wrapper:
    """What the library asks of a tokenizer object."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: GrammarVocabulary) -> None:
        self._vocabulary = vocabulary
        self.eos_token_id = vocabulary.size
        self.special_token_ids = [*sorted(vocabulary.special_ids), vocabulary.size]
        texts = (b"" if _NO_TEXT in text else text for text in vocabulary.token_bytes)
        self.tokens = [*texts, b"<the end>"]
        self._cut_before = lru_cache(_MAX_KEPT_CUTS)(self._cut)

    def __call__(self, text: str | bytes) -> list[int]:
        """Tokens whose bytes are those of the text; how it is cut is a guess. For `forced_tokens`, which asks for the
        same few texts again and again: the names in a schema."""
        wanted = text.encode() if isinstance(text, str) else text
        return self._cut(wanted) if len(wanted) > _MAX_KEPT_BYTES else list(self._cut_before(wanted))

    def _cut(self, wanted: bytes) -> list[int]:
        known = self._vocabulary.token_bytes
        ids = self._vocabulary.encode(wanted.decode("utf-8", "replace"))
        for skipped in range(min(2, len(ids))):  # some tokenizers put a space first, as a token or part of one
            if b"".join(known[i] for i in ids[skipped:]) == wanted:
                return ids[skipped:]
        return _longest_first(wanted, self._ids_by_bytes)

    @cached_property
    def _ids_by_bytes(self) -> dict[bytes, int]:
        special = self._vocabulary.special_ids
        return {text: i for i, text in enumerate(self._vocabulary.token_bytes) if text and i not in special}


def _longest_first(text: bytes, ids: Mapping[bytes, int]) -> list[int]:
    """The text cut by taking the longest token each time; ends where no token fits."""
    longest = max(map(len, ids), default=0)
    found: list[int] = []
    at = 0
    while at < len(text):
        end = next((end for end in range(min(len(text), at + longest), at, -1) if text[at:end] in ids), None)
        if end is None:
            break
        found.append(ids[text[at:end]])
        at = end
    return found
