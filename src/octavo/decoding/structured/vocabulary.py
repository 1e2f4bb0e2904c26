"""A tokenizer's vocabulary as a grammar sees it: the bytes of every token."""

from collections.abc import Callable
from dataclasses import dataclass

from octavo.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class GrammarVocabulary:
    """All tokens of a model."""

    token_bytes: tuple[bytes, ...]
    """id -> what the token adds to a text; control tokens as they are spelled."""
    special_ids: frozenset[int]
    """Control tokens: they stand for themselves, never for the text of their spelling."""
    encode: Callable[[str], list[int]]
    """Ids of a text in the middle of an answer, as the model was trained on; best effort."""

    @property
    def size(self) -> int:
        """Ids run from 0 to size - 1."""
        return len(self.token_bytes)

    def special_id(self, spelling: str) -> int | None:
        """The control token that is spelled so."""
        wanted = spelling.encode()
        return next((i for i in sorted(self.special_ids) if self.token_bytes[i] == wanted), None)

    def spelled_specials(self) -> dict[str, int]:
        """Spelling -> id of every control token that has one."""
        texts = {i: self.token_bytes[i].decode("utf-8", "replace") for i in sorted(self.special_ids, reverse=True)}
        return {text: i for i, text in texts.items() if text}


def grammar_vocabulary(tokenizer: Tokenizer, size: int | None = None) -> GrammarVocabulary:
    """The vocabulary of a tokenizer. Spells out all of it, which takes a moment: 0.1 s for 262,144 tokens.

    Args:
        size: leaves out ids from there on, which the model does not have.
    """
    ids = range(tokenizer.vocab_size if size is None else min(size, tokenizer.vocab_size))

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special=False)

    return GrammarVocabulary(
        token_bytes=tuple(map(tokenizer.token_bytes, ids)),
        special_ids=frozenset(filter(tokenizer.is_special, ids)),
        encode=encode,
    )
