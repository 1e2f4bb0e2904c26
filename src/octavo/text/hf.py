"""Tokenizers from a Hugging Face folder.

`tokenizer.json` is read by the `tokenizers` library, which then encodes; a folder that has only a
SentencePiece `tokenizer.model` gets that library. Decoding is always ours, from bytes, so the file's decoder
has to be one of the two kinds whose pieces stand for bytes: byte-level, or SentencePiece's.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as LibraryTokenizer

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.text.byte_level import spell_byte_level
from octavo.text.hf_config import HfTokenizerConfig
from octavo.text.hf_sentencepiece import read_sentencepiece
from octavo.text.library_encoder import LibraryEncoder
from octavo.text.library_faults import reading_tokenizer
from octavo.text.parts import BYTE_PIECE, TokenizerParts, TokenKind, Vocabulary
from octavo.text.sentencepiece_model import SPACE, spell_sentencepiece


def read_hf(folder: Path) -> TokenizerParts:
    """The tokenizer of a folder.

    Raises:
        ModelFileError: no tokenizer file, or a damaged one.
        UnsupportedModelError: a decoder whose pieces do not stand for bytes.
    """
    config = HfTokenizerConfig(folder)
    if (path := folder / "tokenizer.json").is_file():
        return _read_json(path, config)
    if (path := folder / "tokenizer.model").is_file():
        with reading_tokenizer(path, "sentencepiece"):
            return read_sentencepiece(path, config)
    raise ModelFileError("neither tokenizer.json nor tokenizer.model is there", str(folder))


@dataclass(frozen=True, slots=True)
class _Spelling:
    """How a file's decoder turns pieces into bytes."""

    spell: Callable[[str], bytes]
    has_byte_pieces: bool = False
    drops_first_space: bool = False


def _read_json(path: Path, config: HfTokenizerConfig) -> TokenizerParts:
    with reading_tokenizer(path, "tokenizers"):
        return _parts(path, LibraryTokenizer.from_file(str(path)), config)


def _parts(path: Path, library: LibraryTokenizer, config: HfTokenizerConfig) -> TokenizerParts:
    spelling = _spelling_of(path, library)
    ids = library.get_vocab(with_added_tokens=True)
    vocabulary = _vocabulary(path, ids, library.get_added_tokens_decoder(), spelling)
    bos_id = config.named_id("bos_token", ids)
    encoder = LibraryEncoder(library)
    before, after = _template_ids(library)
    if any(token_id >= len(vocabulary.pieces) for token_id in (*before, *after)):
        raise ModelFileError("its post_processor adds ids that are not in its vocabulary", str(path))
    return TokenizerParts(
        vocabulary=vocabulary,
        encoder=encoder,
        bos_id=bos_id if bos_id is not None else next(iter(before), None),
        eos_ids=config.eos_ids(ids, vocabulary),
        prefix_ids=config.added_ids("bos_token", ids, before),
        suffix_ids=config.added_ids("eos_token", ids, after),
        drops_first_space=spelling.drops_first_space,
    )


def _spelling_of(path: Path, library: LibraryTokenizer) -> _Spelling:
    decoder = json.loads(library.decoder.__getstate__()) if library.decoder is not None else {"type": None}
    stages = {stage["type"]: stage for stage in decoder.get("decoders", [decoder])}
    if "ByteLevel" in stages:
        return _Spelling(spell_byte_level)
    if "Metaspace" in stages:
        drops = stages["Metaspace"].get("prepend_scheme", "always") != "never"
        return _Spelling(spell_sentencepiece, "ByteFallback" in stages, drops)
    if stages.get("Replace", {}).get("pattern") == {"String": SPACE}:
        drops = stages.get("Strip", {}).get("start", 0) > 0
        return _Spelling(spell_sentencepiece, "ByteFallback" in stages, drops)
    raise UnsupportedModelError(
        f"{path}: decoder {'+'.join(map(str, stages))}: Octavo knows byte-level and SentencePiece decoders"
    )


def _vocabulary(path: Path, ids: Mapping[str, int], added: Mapping[int, AddedToken], spelling: _Spelling) -> Vocabulary:
    size = max(ids.values(), default=-1) + 1
    if size > 2 * len(ids) + 65536:
        raise ModelFileError(f"{len(ids)} tokens, but the largest id is {size - 1}", str(path))
    pieces, kinds = [""] * size, bytearray((TokenKind.UNUSED,)) * size
    for piece, token_id in ids.items():
        pieces[token_id] = piece
        is_byte = spelling.has_byte_pieces and BYTE_PIECE.fullmatch(piece)
        kinds[token_id] = TokenKind.BYTE if is_byte else TokenKind.NORMAL
    for token_id, token in added.items():
        kinds[token_id] = TokenKind.CONTROL if token.special else TokenKind.USER_DEFINED
        if not token.special and spelling.spell is spell_sentencepiece:
            pieces[token_id] = token.content.replace(SPACE, " ")
    return Vocabulary(pieces, bytes(kinds), spelling.spell)


def _template_ids(library: LibraryTokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that the file's post-processor puts before and after a text."""
    probe: Any = library.encode("a", add_special_tokens=True)
    mask = probe.special_tokens_mask
    if 0 not in mask:
        return tuple(probe.ids), ()
    first, last = mask.index(0), len(mask) - mask[::-1].index(0)
    return tuple(probe.ids[:first]), tuple(probe.ids[last:])
