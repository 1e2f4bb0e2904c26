"""Encoding by the `sentencepiece` library, with models rebuilt from a vocabulary.

A GGUF file keeps a SentencePiece model's pieces, scores and types but not the model itself, so a ModelProto
(protocol buffers, sentencepiece_model.proto) is serialised here and given to the library. It holds the
vocabulary, and the three settings that change how a BPE model by scores reads text; the rest of the message
says how a model was trained.
"""

from collections.abc import Iterator, Mapping, Sequence

from sentencepiece import SentencePieceProcessor

from octavo.text.parts import TokenKind
from octavo.text.special_splitter import SpecialSplitter

SPACE = "\u2581"
"""How pieces write a space."""

_LENGTH_DELIMITED, _VARINT, _FIXED32 = 2, 0, 5
_MODEL_TYPE_BPE = 2


def spell_sentencepiece(piece: str) -> bytes:
    """Bytes of a normal piece."""
    return piece.replace(SPACE, " ").encode()


class SentencePieceEncoder:
    """A :class:`TextEncoder` over one SentencePiece model.

    The library matches its own user-defined pieces but never yields a control token, so those are cut out
    first.
    """

    def __init__(
        self,
        processor: SentencePieceProcessor,
        special_ids: Mapping[str, int],
        added_ids: Mapping[str, int] | None = None,
    ) -> None:
        """
        Args:
            processor: the model.
            special_ids: spelling -> id of control tokens.
            added_ids: spelling -> id of user-defined tokens that the model does not know.
        """
        self._processor = processor
        self._splitters = {
            False: SpecialSplitter(added_ids or {}),
            True: SpecialSplitter({**special_ids, **(added_ids or {})}),
        }

    def encode(self, text: str, parse_special: bool) -> list[int]:
        ids: list[int] = []
        for part in self._splitters[parse_special].split(text):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids.extend(self._processor.EncodeAsIds(part))
        return ids


def serialise_model(
    pieces: Sequence[bytes],
    kinds: bytes,
    scores: bytes,
    *,
    unknown_id: int,
    add_space_prefix: bool,
    trim_spaces: bool,
) -> bytes:
    """A ModelProto of a BPE model.

    Args:
        pieces: UTF-8 spelling of each id, none empty, no two alike, spaces written as SPACE.
        kinds: one TokenKind per id; exactly one UNKNOWN.
        scores: one little-endian float32 per id.
        unknown_id: the id of that one.
        add_space_prefix: a space is put before the text.
        trim_spaces: leading, trailing and repeated spaces are dropped.
    """
    byte_fallback = kinds.count(TokenKind.BYTE) == 256
    trainer = b"".join(
        (
            _varint_field(3, _MODEL_TYPE_BPE),
            _varint_field(35, byte_fallback),
            _varint_field(40, unknown_id),
        )
    )
    normalizer = b"".join(
        (
            _bytes_field(1, b"identity"),
            _varint_field(3, add_space_prefix),
            _varint_field(4, trim_spaces),
            _varint_field(5, True),  # spaces are escaped
        )
    )
    fields = _piece_fields(pieces, kinds, scores)
    return b"".join((*fields, _bytes_field(2, trainer), _bytes_field(3, normalizer)))


def _piece_fields(pieces: Sequence[bytes], kinds: bytes, scores: bytes) -> Iterator[bytes]:
    """One `pieces` field per id: {1: piece, 2: float score, 3: type}."""
    score_tag, kind_tag = _tag(2, _FIXED32), _tag(3, _VARINT)
    tails = [kind_tag + bytes((kind,)) for kind in range(max(kinds, default=0) + 1)]
    for at, piece in enumerate(pieces):
        yield _bytes_field(1, _bytes_field(1, piece) + score_tag + scores[4 * at : 4 * at + 4] + tails[kinds[at]])


def _bytes_field(number: int, content: bytes) -> bytes:
    size = len(content)
    head = bytes((number << 3 | _LENGTH_DELIMITED,))
    # Nearly every piece is shorter than 128 bytes, and this runs twice per vocabulary entry.
    return head + (bytes((size,)) if size < 0x80 else _varint(size)) + content


def _varint_field(number: int, value: int) -> bytes:
    return _tag(number, _VARINT) + _varint(value)


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
