"""SentencePiece tokenizers ("llama": BPE by scores, with byte fallback) from GGUF metadata."""

from sentencepiece import SentencePieceProcessor

from octavo.errors import ModelFileError
from octavo.text.end_tokens import end_ids
from octavo.text.gguf_bpe import added_ids
from octavo.text.gguf_metadata import PREFIX, TokenizerMetadata
from octavo.text.parts import TokenizerParts, TokenKind, Vocabulary
from octavo.text.sentencepiece_model import SPACE, SentencePieceEncoder, serialise_model, spell_sentencepiece

# What files written before these keys existed mean.
_DEFAULT_UNKNOWN, _DEFAULT_BOS, _DEFAULT_EOS = 0, 1, 2


def read_spm(metadata: TokenizerMetadata) -> TokenizerParts:
    """The parts of a SentencePiece tokenizer.

    Raises:
        ModelFileError: a key is missing or contradicts another, or the vocabulary is no SentencePiece model.
    """
    vocabulary = Vocabulary(metadata.tokens, metadata.kinds(), spell_sentencepiece)
    control_ids = vocabulary.ids_of(TokenKind.CONTROL)
    spelling = metadata.tokens.__getitem__
    bos_id, eos_id = metadata.token_id("bos", _DEFAULT_BOS), metadata.token_id("eos", _DEFAULT_EOS)
    add_space_prefix = metadata.flag("add_space_prefix", True)
    return TokenizerParts(
        vocabulary=vocabulary,
        encoder=SentencePieceEncoder(
            _processor(metadata, vocabulary.kinds, add_space_prefix), {spelling(i): i for i in control_ids}
        ),
        bos_id=bos_id,
        eos_ids=end_ids((eos_id, metadata.token_id("eot"), metadata.token_id("eom")), control_ids, spelling),
        prefix_ids=added_ids(metadata.flag("add_bos_token", True), bos_id, "bos"),
        suffix_ids=added_ids(metadata.flag("add_eos_token", False), eos_id, "eos"),
        drops_first_space=add_space_prefix,
    )


def _processor(metadata: TokenizerMetadata, kinds: bytes, add_space_prefix: bool) -> SentencePieceProcessor:
    unknown_id = metadata.token_id("unknown", _DEFAULT_UNKNOWN)
    if unknown_id is None:
        raise ModelFileError(f"{PREFIX}unknown_token_id is missing")
    model = serialise_model(
        _model_pieces(metadata.tokens),
        _model_kinds(kinds, unknown_id),
        metadata.scores(),
        unknown_id=unknown_id,
        add_space_prefix=add_space_prefix,
        trim_spaces=metadata.flag("remove_extra_whitespaces", False),
    )
    processor = SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except RuntimeError as error:
        raise ModelFileError(f"{PREFIX}tokens is not a usable SentencePiece vocabulary: {error}") from error
    return processor


def _model_pieces(tokens: list[str]) -> list[bytes]:
    """Spellings as the library wants them. User-defined runs of spaces come with real spaces in GGUF
    files."""
    return [(token.replace(" ", SPACE) or f"[empty {i}]").encode() for i, token in enumerate(tokens)]


def _model_kinds(kinds: bytes, unknown_id: int) -> bytes:
    """The library takes exactly one unknown piece; some files type it as control, some type several as
    unknown."""
    changed = bytearray(kinds.replace(bytes((TokenKind.UNKNOWN,)), bytes((TokenKind.CONTROL,))))
    changed[unknown_id] = TokenKind.UNKNOWN
    return bytes(changed)
