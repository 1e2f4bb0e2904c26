"""What a tokenizer is made of: plain data that each file format fills in and :class:`Tokenizer` reads."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from octavo.errors import InvalidRequestError, ModelFileError

BYTE_PIECE = re.compile("<0x[0-9A-Fa-f]{2}>")
"""How a BYTE piece names its byte."""


class TokenKind(IntEnum):
    """What a vocabulary entry is for. The numbers are those of GGUF and of sentencepiece's ModelProto."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    """Never produced from plain text: beginning and end of text, turn markers."""
    USER_DEFINED = 4
    """Produced from plain text wherever its spelling stands, before any other rule."""
    UNUSED = 5
    BYTE = 6
    """`<0xNN>`: one byte, for text that no other piece covers."""


_SPELLED_AS_IS = frozenset((TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.USER_DEFINED))


class Vocabulary:
    """Which bytes each token id stands for.

    Bytes are worked out on first use of an id: spelling out a vocabulary of 262,144 pieces at load would take
    longer than everything else that a tokenizer does at load.
    """

    def __init__(self, pieces: Sequence[str], kinds: bytes, spell: Callable[[str], bytes]) -> None:
        """
        Args:
            pieces: the spelling in the file of each id.
            kinds: one TokenKind per id.
            spell: bytes of a NORMAL or UNUSED piece; a family's alphabet (byte-level, sentencepiece) lives
                here.

        Raises:
            ModelFileError: a BYTE piece that names no byte.
        """
        self.pieces = pieces
        self.kinds = kinds
        for token_id in self.ids_of(TokenKind.BYTE):
            if not BYTE_PIECE.fullmatch(pieces[token_id]):
                raise ModelFileError(f"token {token_id} is typed as a byte, but spelled {pieces[token_id][:20]!r}")
        self._spell = spell
        self._bytes_by_id: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self.pieces)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token; control tokens as they are spelled.

        Raises:
            InvalidRequestError: no such id.
        """
        known = self._bytes_by_id.get(token_id)
        if known is None:
            known = self._bytes_by_id[token_id] = self._work_out(token_id)
        return known

    def is_special(self, token_id: int) -> bool:
        """Whether the id is a control (or the unknown) token, which gives no text unless asked for."""
        return self._kind(token_id) in (TokenKind.CONTROL, TokenKind.UNKNOWN)

    def ids_of(self, kind: TokenKind) -> list[int]:
        """All ids of one kind, ascending."""
        ids, at = [], self.kinds.find(kind)
        while at >= 0:
            ids.append(at)
            at = self.kinds.find(kind, at + 1)
        return ids

    def _work_out(self, token_id: int) -> bytes:
        kind = self._kind(token_id)
        piece = self.pieces[token_id]
        if kind == TokenKind.BYTE:
            return bytes((int(piece[3:5], 16),))
        if kind in _SPELLED_AS_IS:
            return piece.encode()
        return self._spell(piece)

    def _kind(self, token_id: int) -> int:
        if not 0 <= token_id < len(self.kinds):
            raise InvalidRequestError("token_ids", token_id, f"token ids run from 0 to {len(self.kinds) - 1}")
        return self.kinds[token_id]


class TextEncoder(Protocol):
    """Turns text into ids; adds nothing before or after."""

    def encode(self, text: str, parse_special: bool) -> list[int]:
        """Ids of `text`. Spellings of control tokens are plain text unless `parse_special`."""


@dataclass(frozen=True, slots=True)
class TokenizerParts:
    """All that a tokenizer file says, in the form that :class:`Tokenizer` uses."""

    vocabulary: Vocabulary
    encoder: TextEncoder
    bos_id: int | None
    """Beginning of text, whether or not it is added."""
    eos_ids: tuple[int, ...]
    """Every id that ends a generation; the file's own end-of-text id first."""
    prefix_ids: tuple[int, ...]
    """Put before every text that is encoded with `add_special`."""
    suffix_ids: tuple[int, ...]
    """Put after it."""
    drops_first_space: bool
    """The encoder puts a space before the text, so decoding drops one from its start."""
    max_token_bytes: int | None = None
    """No token stands for more bytes of a text; None: nobody knows, since something may shorten texts first."""
