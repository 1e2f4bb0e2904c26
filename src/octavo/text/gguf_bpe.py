"""Byte-level BPE tokenizers ("gpt2") from GGUF metadata."""

from collections.abc import Iterable

from tokenizers import AddedToken
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers.models import BPE

from octavo.errors import ModelFileError
from octavo.text.byte_level import spell_byte_level
from octavo.text.end_tokens import end_ids
from octavo.text.gguf_metadata import PREFIX, TokenizerMetadata
from octavo.text.library_encoder import LibraryEncoder
from octavo.text.parts import TokenizerParts, TokenKind, Vocabulary
from octavo.text.pretokenizers import BpeRule, rule_for

NFC_SHRINKS = 3
"""Most bytes of UTF-8 that this normal form makes one of (the Unicode consortium's FAQ on normalization)."""


def read_bpe(metadata: TokenizerMetadata) -> TokenizerParts:
    """The parts of a byte-level BPE tokenizer.

    Raises:
        ModelFileError: a key is missing or contradicts another.
        UnsupportedModelError: an unknown pre-tokeniser.
    """
    rule = rule_for(metadata.text("pre", "default"))
    vocabulary = Vocabulary(metadata.tokens, metadata.kinds(), spell_byte_level)
    bos_id, eos_id = metadata.token_id("bos"), metadata.token_id("eos")
    add_bos = metadata.flag("add_bos_token", rule.add_bos and bos_id is not None)
    return TokenizerParts(
        vocabulary=vocabulary,
        encoder=LibraryEncoder(_library(metadata, vocabulary, rule)),
        bos_id=bos_id,
        eos_ids=end_ids(
            (eos_id, metadata.token_id("eot"), metadata.token_id("eom")),
            vocabulary.ids_of(TokenKind.CONTROL),
            metadata.tokens.__getitem__,
        ),
        prefix_ids=added_ids(add_bos, bos_id, "bos"),
        suffix_ids=added_ids(metadata.flag("add_eos_token", False), eos_id, "eos"),
        drops_first_space=False,
        max_token_bytes=_longest(vocabulary) * (NFC_SHRINKS if rule.normalizer is not None else 1),
    )


def _longest(vocabulary: Vocabulary) -> int:
    """Most bytes that a token stands for, or a little more: in these vocabularies a character is a byte, but in added
    tokens, which are spelled as they are."""
    added = [*vocabulary.ids_of(TokenKind.CONTROL), *vocabulary.ids_of(TokenKind.USER_DEFINED)]
    longest_added = max((len(vocabulary.pieces[i].encode()) for i in added), default=1)
    return max(longest_added, *map(len, vocabulary.pieces))


def added_ids(add: bool, token_id: int | None, name: str) -> tuple[int, ...]:
    """The ids that `add_{name}_token` puts around a text.

    Raises:
        ModelFileError: the file adds a token that it does not name.
    """
    if not add:
        return ()
    if token_id is None:
        raise ModelFileError(f"{PREFIX}add_{name}_token is true, but {PREFIX}{name}_token_id is missing")
    return (token_id,)


def _library(metadata: TokenizerMetadata, vocabulary: Vocabulary, rule: BpeRule) -> LibraryTokenizer:
    tokens = metadata.tokens
    ids, merges = {token: i for i, token in enumerate(tokens)}, _pairs(metadata.merges())
    try:
        model = BPE(ids, merges, ignore_merges=rule.ignore_merges)
    except Exception as error:  # the library raises nothing narrower
        raise ModelFileError(f"{PREFIX}merges do not fit {PREFIX}tokens: {error}") from error
    library = LibraryTokenizer(model)
    library.pre_tokenizer = rule.pre_tokenizer()
    if rule.normalizer is not None:
        library.normalizer = rule.normalizer()
    library.add_special_tokens(_added(tokens, vocabulary.ids_of(TokenKind.CONTROL)))
    library.add_tokens(_added(tokens, vocabulary.ids_of(TokenKind.USER_DEFINED)))
    return library


def _pairs(merges: list[str]) -> list[tuple[str, str]]:
    pairs = [(left, right) for left, space, right in (merge.partition(" ") for merge in merges) if space]
    if len(pairs) < len(merges):
        at = next(at for at, merge in enumerate(merges) if " " not in merge)
        raise ModelFileError(f"{PREFIX}merges[{at}] is not two pieces with a space between")
    return pairs


def _added(tokens: list[str], ids: Iterable[int]) -> list[AddedToken]:
    return [AddedToken(tokens[i], normalized=False) for i in ids if tokens[i]]
