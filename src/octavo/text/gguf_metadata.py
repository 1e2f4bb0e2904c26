"""Typed reading of the `tokenizer.ggml.*` keys of a GGUF file: every fault names the key."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from octavo.errors import ModelFileError
from octavo.text.parts import TokenKind

PREFIX = "tokenizer.ggml."


NUM_TOKENS = "octavo.num_tokens"
"""Key of files that Octavo made: how many ids are tokens, from 0 on. Those behind give a name to rows that pad the
embedding; their type, unused, says too little, since tokens that a model may draw have it, too."""


def num_tokens(metadata: Mapping[str, Any], rows: int) -> int:
    """How many ids of a GGUF file may be drawn.

    Args:
        rows: the answer for a file without a vocabulary.

    Raises:
        ModelFileError: the file's number is none, or larger than its vocabulary.
    """
    named = len(metadata.get(f"{PREFIX}tokens", range(rows)))
    if NUM_TOKENS not in metadata:
        return named
    value = metadata[NUM_TOKENS]
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not 1 <= value <= named:
        raise ModelFileError(f"{NUM_TOKENS} is {str(value)[:80]!r}, but must be a number from 1 to {named}")
    return int(value)


class TokenizerMetadata:
    """The `tokenizer.ggml.*` keys of one file. Keys are given without that prefix."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self.tokens = self._strings("tokens")
        if not self.tokens:
            raise ModelFileError(f"{PREFIX}tokens is empty: the file has no vocabulary")

    def text(self, key: str, default: str) -> str:
        """A string, or `default` where the key is absent."""
        value = self._metadata.get(PREFIX + key, default)
        if not isinstance(value, str):
            raise _wrong(key, value, "a string")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """A boolean, or `default` where the key is absent."""
        value = self._metadata.get(PREFIX + key, default)
        if not isinstance(value, bool | np.bool_):
            raise _wrong(key, value, "a boolean")
        return bool(value)

    def token_id(self, name: str, default: int | None = None) -> int | None:
        """The id under `{name}_token_id`, checked against the vocabulary; None where the file names none."""
        key = f"{name}_token_id"
        value = self._metadata.get(PREFIX + key)
        if value is None:
            return default if default is not None and default < len(self.tokens) else None
        if not isinstance(value, int | np.integer) or not 0 <= value < len(self.tokens):
            raise _wrong(key, value, f"an id from 0 to {len(self.tokens) - 1}")
        return int(value)

    def merges(self) -> list[str]:
        """The merge rules, best first."""
        return self._strings("merges")

    def kinds(self) -> bytes:
        """One TokenKind per id; all NORMAL where the file does not say."""
        default = [TokenKind.NORMAL] * len(self.tokens)
        kinds = self._numbers("token_type", default, np.int64)
        if kinds.min() < TokenKind.NORMAL or kinds.max() > TokenKind.BYTE:
            raise ModelFileError(f"{PREFIX}token_type holds values outside 1..6")
        return kinds.astype(np.uint8).tobytes()

    def scores(self) -> bytes:
        """One little-endian float32 per id; zeros where the file does not say."""
        scores = self._numbers("scores", [0.0] * len(self.tokens), np.dtype("<f4"))
        if not np.isfinite(scores).all():
            raise ModelFileError(f"{PREFIX}scores holds a value that is not a finite number")
        return scores.tobytes()

    def _strings(self, key: str) -> list[str]:
        value = self._metadata.get(PREFIX + key)
        if value is None:
            raise ModelFileError(f"{PREFIX}{key} is missing: the file has no usable tokenizer")
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise _wrong(key, value, "a list of strings")
        return value

    def _numbers(self, key: str, default: Sequence[float], dtype: Any) -> np.ndarray[Any, Any]:
        value = self._metadata.get(PREFIX + key, default)
        try:
            numbers = np.asarray(value, dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise _wrong(key, value, "a list of numbers") from error
        if numbers.shape != (len(self.tokens),):
            raise ModelFileError(f"{PREFIX}{key} has shape {numbers.shape}, but there are {len(self.tokens)} tokens")
        return numbers


def _wrong(key: str, value: object, wanted: str) -> ModelFileError:
    shown = repr(value) if isinstance(value, str | int | float) else type(value).__name__
    return ModelFileError(f"{PREFIX}{key} is {shown[:80]}, but must be {wanted}")
