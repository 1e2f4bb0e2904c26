"""The byte-level alphabet of GPT-2: every byte is written as one printable character.

Printable Latin-1 characters stand for themselves; the other 68 bytes get the characters from U+0100 on, in
order, so a space is written as U+0120 and a newline as U+010A.
"""

_PRINTABLE = frozenset((*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)))
_OTHERS = tuple(byte for byte in range(256) if byte not in _PRINTABLE)

CHARACTER_BY_BYTE: tuple[str, ...] = tuple(
    chr(byte) if byte in _PRINTABLE else chr(0x100 + _OTHERS.index(byte)) for byte in range(256)
)
"""How each byte is written."""

_LATIN1_BY_CHARACTER = {ord(character): byte for byte, character in enumerate(CHARACTER_BY_BYTE)}
_ALPHABET = frozenset(CHARACTER_BY_BYTE)


def spell_byte_level(piece: str) -> bytes:
    """Bytes of a piece; a piece with any character outside the alphabet stands for its own UTF-8."""
    if _ALPHABET.issuperset(piece):
        return piece.translate(_LATIN1_BY_CHARACTER).encode("latin-1")
    return piece.encode()
