"""The contracts of structured output: a backend compiles grammars, a matcher follows one answer."""

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from octavo.execution.protocols import Int32
from octavo.request.structured import StructuredSpec

WORD_BITS = 32


def mask_words(vocab_size: int) -> int:
    """Words of 32 bits in a row of allowed tokens: bit `i % 32` of word `i // 32` is token i, 1 is allowed."""
    return -(-vocab_size // WORD_BITS)


def allow(row: Int32, token_ids: Iterable[int]) -> None:
    """Sets the bits of tokens in a row."""
    words = row.view(np.uint32)
    for token_id in token_ids:
        words[token_id // WORD_BITS] |= np.uint32(1 << token_id % WORD_BITS)


def forbid(row: Int32, token_ids: Iterable[int]) -> None:
    """Clears the bits of tokens in a row."""
    words = row.view(np.uint32)
    for token_id in token_ids:
        words[token_id // WORD_BITS] &= ~np.uint32(1 << token_id % WORD_BITS)


class Matcher(Protocol):
    """Where one answer stands in a grammar. Used by one thread at a time; what it says depends on the tokens accepted
    and on nothing else."""

    @property
    def num_tokens(self) -> int:
        """Tokens accepted and not rolled back."""
        ...

    @property
    def can_end(self) -> bool:
        """The answer is whole: an end token may come now."""
        ...

    @property
    def is_complete(self) -> bool:
        """The answer is whole and nothing can follow but an end token. Where none is to be had (`ignore_eos`,
        `min_tokens`), the answer ends here all the same.

        Raises:
            RequestFailedError: see `fill_mask`.
        """
        ...

    @property
    def is_terminated(self) -> bool:
        """An end token has been accepted."""
        ...

    def fill_mask(self, row: Int32) -> None:
        """Writes the tokens allowed next into a row, `[mask_words(vocab_size)]`. At least one is, but where
        `is_complete` and there are no end tokens; after an end token only end tokens are.

        Raises:
            RequestFailedError: no token of the vocabulary continues the answer, or the grammar became too complex; the
                message says so. The request cannot go on.
        """
        ...

    def accept(self, token_id: int) -> bool:
        """Goes on by one token. False, and nothing changes, if it is not allowed.

        Raises:
            RequestFailedError: the grammar became too complex.
        """
        ...

    def rollback(self, num_tokens: int) -> None:
        """Takes back the last tokens accepted.

        Raises:
            ValueError: more than were accepted.
        """
        ...

    def forced_tokens(self) -> list[int]:
        """Tokens that the grammar leaves no choice about but for how the text is cut: a guess of what comes next, each
        of them allowed after those before. Often empty."""
        ...

    def clone(self) -> "Matcher":
        """Another matcher at the same place, independent of this one."""
        ...


class CompiledGrammar(Protocol):
    """A grammar for one vocabulary. Immutable and shared by answers and threads."""

    @property
    def num_bytes(self) -> int:
        """About the memory it takes, for the cache's budget."""
        ...

    def matcher(self, end_token_ids: tuple[int, ...]) -> Matcher:
        """A matcher at the beginning of an answer.

        Args:
            end_token_ids: allowed where the answer is whole, and there only; the model's end-of-sequence ids. Empty:
                the answer ends when `Matcher.is_complete`, or by its length.
        """
        ...


class GrammarBackend(Protocol):
    """Compiles for one vocabulary. Safe to use from several threads."""

    def prepare(self) -> None:
        """Does what else the first compilation would do first. It may take a second, and hold up all threads: to be
        called where nobody waits, at start. Idempotent."""
        ...

    def compile(self, spec: StructuredSpec) -> CompiledGrammar:
        """Takes milliseconds to seconds, outside Python's lock for the most part.

        Raises:
            InvalidRequestError: the spec is wrong, asks for what is not supported, or is too large; names its field
                and the place.
        """
        ...
