"""The tokenizer: text to token ids and back."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from octavo.errors import InvalidRequestError
from octavo.text.gguf import read_gguf
from octavo.text.hf import read_hf
from octavo.text.parts import TokenizerParts, TokenKind


def from_gguf(metadata: Mapping[str, Any]) -> "Tokenizer":
    """The tokenizer in a GGUF file's key/values (`tokenizer.ggml.*`; arrays as lists or NumPy arrays).

    Raises:
        ModelFileError: a key is missing, of the wrong type, or contradicts another; the message names it.
        UnsupportedModelError: a tokenizer family or pre-tokeniser that Octavo does not know.
    """
    return Tokenizer(read_gguf(metadata))


def from_hf(folder: Path) -> "Tokenizer":
    """The tokenizer in a Hugging Face folder: `tokenizer.json`, else a SentencePiece `tokenizer.model`.

    Raises:
        ModelFileError: neither is there, or one is damaged; the message names the file.
        UnsupportedModelError: a kind of tokenizer that Octavo cannot decode byte by byte.
    """
    return Tokenizer(read_hf(folder))


class Tokenizer:
    """Text to token ids and back, for any family. Safe to share between threads."""

    def __init__(self, parts: TokenizerParts) -> None:
        self._parts = parts
        self._vocabulary = parts.vocabulary

    @property
    def vocab_size(self) -> int:
        """Number of ids: 0 to vocab_size - 1 exist."""
        return len(self._vocabulary)

    @property
    def bos_id(self) -> int | None:
        """The beginning-of-text id, or None if the vocabulary has none."""
        return self._parts.bos_id

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Every id that ends a generation, the file's own end-of-text id first; empty if it names none."""
        return self._parts.eos_ids

    @property
    def bos_token(self) -> str:
        """Spelling of the beginning-of-text token, empty if there is none. Chat templates want it."""
        return "" if self.bos_id is None else self._vocabulary.pieces[self.bos_id]

    @property
    def eos_token(self) -> str:
        """Spelling of the first end-of-text token, empty if there is none."""
        return self._vocabulary.pieces[self.eos_ids[0]] if self.eos_ids else ""

    @property
    def add_bos(self) -> bool:
        """Whether `add_special` puts the beginning-of-text id first."""
        return self.bos_id is not None and self.bos_id in self._parts.prefix_ids

    @property
    def drops_first_space(self) -> bool:
        """Whether decoding drops one space from the start of a text (the encoder put one there)."""
        return self._parts.drops_first_space

    def control_tokens(self) -> dict[str, int]:
        """Spelling -> id of every control token."""
        return {self._vocabulary.pieces[i]: i for i in self._vocabulary.ids_of(TokenKind.CONTROL)}

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of `text`.

        Args:
            text: any text; without lone surrogates.
            add_special: put the ids before and after it that the model expects around a text (usually one BOS
                or none).
            parse_special: read spellings of control tokens as those tokens. Off, a user who types
                `<|im_end|>` gets the ids of these ten characters.

        Raises:
            InvalidRequestError: the text holds a lone surrogate, which no UTF-8 can carry.
        """
        _check_encodable(text)
        ids = self._parts.encoder.encode(text, parse_special)
        return [*self._parts.prefix_ids, *ids, *self._parts.suffix_ids] if add_special else ids

    def least_tokens(self, text: str) -> int:
        """A number of tokens that `text` certainly has; 0 where nothing is certain. Costs next to nothing."""
        most_bytes = self._parts.max_token_bytes
        return 0 if most_bytes is None else -(-len(text) // most_bytes)

    def encode_chat(self, rendered: str) -> list[int]:
        """Token ids of a rendered chat template: control tokens are read, and there is exactly one BOS where
        the model expects one, whether or not the template writes it."""
        ids = self.encode(rendered, add_special=False, parse_special=True)
        prefix = self._parts.prefix_ids
        return ids if tuple(ids[: len(prefix)]) == prefix else [*prefix, *ids]

    def decode(self, token_ids: Iterable[int], *, skip_special: bool = True, continues: bool = False) -> str:
        """Text of the ids: their bytes are joined, then read as UTF-8 once, each fault as U+FFFD.

        Args:
            token_ids: any ids of the vocabulary.
            skip_special: leave out control tokens instead of spelling them.
            continues: text stands before these ids, so a leading space is theirs and stays.

        Raises:
            InvalidRequestError: an id outside the vocabulary.
        """
        joined = b"".join(self.text_bytes(i, skip_special=skip_special) for i in token_ids)
        if self.drops_first_space and not continues:
            joined = joined.removeprefix(b" ")
        return joined.decode("utf-8", "replace")

    def text_bytes(self, token_id: int, *, skip_special: bool) -> bytes:
        """What one id adds to a decoded text: `token_bytes`, or nothing for a control token that is
        skipped."""
        if skip_special and self._vocabulary.is_special(token_id):
            return b""
        return self._vocabulary.token_bytes(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token, possibly part of a character; control tokens as they are spelled.

        Raises:
            InvalidRequestError: an id outside the vocabulary.
        """
        return self._vocabulary.token_bytes(token_id)

    def is_special(self, token_id: int) -> bool:
        """Whether the id is a control token.

        Raises:
            InvalidRequestError: an id outside the vocabulary.
        """
        return self._vocabulary.is_special(token_id)


def _check_encodable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        problem = f"character {error.start} is half of a surrogate pair; send valid Unicode"
        raise InvalidRequestError("prompt", text[error.start], problem) from None
