"""Words to make prompts of, so that lengths are known: each is one token, alone and beside any other."""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from random import Random
from typing import Protocol

from octavo.bench.load.datasets.common_words import COMMON_WORDS
from octavo.errors import ConfigError

MOST_WORDS = 2000
"""More than enough to keep prompts apart: there are 4e6 pairs."""
FEWEST_WORDS = 64
_SHAPE = re.compile(r" ?[a-z]{2,12}")


class Words(Protocol):
    """Makes prompts of known lengths."""

    def draw(self, draw: Random, count: int) -> list[str]:
        """Words of `count` tokens together."""
        ...

    def prompt(self, words: Sequence[str]) -> str:
        """The text of a prompt."""
        ...

    def count(self, text: str) -> int | None:
        """Tokens of any text; None: that is not known."""
        ...

    def at_start(self) -> int:
        """Tokens that the server puts before a prompt."""
        ...


class CommonWords:
    """English words, of which most are one token for most tokenizers: without a tokenizer no length is certain."""

    def draw(self, draw: Random, count: int) -> list[str]:
        """As the contract says, about."""
        return draw.choices(COMMON_WORDS, k=count)

    def prompt(self, words: Sequence[str]) -> str:
        """As the contract says."""
        return " ".join(words)

    def count(self, text: str) -> int | None:
        """Nobody knows."""
        return None

    def at_start(self) -> int:
        """Nobody knows."""
        return 0


class Encoder(Protocol):
    """A tokenizer, as far as words go."""

    @property
    def vocab_size(self) -> int:
        """Ids below exist."""
        ...

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Ids of a text."""
        ...

    def decode(self, token_ids: list[int], *, continues: bool = False) -> str:
        """Text of ids."""
        ...


class TokenWords:
    """Words of a tokenizer that are one token each. Every prompt is encoded, so its length is no guess.

    Args:
        special: whether the server puts a beginning-of-text token before a prompt (completions; in a chat the
            template's tokens are not the prompt's).
    """

    def __init__(self, encoder: Encoder, special: bool) -> None:
        self._encoder = encoder
        self._special = len(encoder.encode("", add_special=True)) if special else 0

    @cached_property
    def _words(self) -> list[str]:
        """Looked for when the first prompt is made: texts that are given need none."""
        words = [word for word, _ in zip(_single_tokens(self._encoder), range(MOST_WORDS), strict=False)]
        if len(words) < FEWEST_WORDS:
            problem = f"has only {len(words)} lower-case words that are one token; no prompts can be made of them"
            raise ConfigError("tokenizer", type(self._encoder).__name__, problem)
        return words

    def draw(self, draw: Random, count: int) -> list[str]:
        """As the contract says.

        Raises:
            ConfigError: the tokenizer has too few words that are one token each.
        """
        return draw.choices(self._words, k=count)

    def prompt(self, words: Sequence[str]) -> str:
        """As the contract says.

        Raises:
            ConfigError: side by side some of the words are other tokens than alone.
        """
        text = " ".join(words)
        found = self.count(text)
        if found != len(words):
            problem = f"reads {len(words)} words of one token each as {found} tokens; leave it out, or choose another"
            raise ConfigError("tokenizer", text[:60], problem)
        return text

    def count(self, text: str) -> int | None:
        """As the contract says."""
        return len(self._encoder.encode(text, add_special=False))

    def at_start(self) -> int:
        """As the contract says."""
        return self._special


def _single_tokens(encoder: Encoder) -> Iterator[str]:
    """Words that are one token wherever they stand, in the order of their ids: the first of a text has no space before
    it, and vocabularies hold such words apart."""
    seen = set()
    for token in range(encoder.vocab_size):
        spelled = encoder.decode([token], continues=True)
        word = spelled.strip()
        if spelled[:1] != " " or word in seen or not _SHAPE.fullmatch(spelled):
            continue
        seen.add(word)
        if len(encoder.encode(f"{word} {word} {word}", add_special=False)) == 3:
            yield word
