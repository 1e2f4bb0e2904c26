"""A SentencePiece `tokenizer.model` of a Hugging Face folder, with the tokens added beside it."""

from pathlib import Path

from sentencepiece import SentencePieceProcessor

from octavo.errors import ModelFileError
from octavo.text.hf_config import HfTokenizerConfig
from octavo.text.parts import TokenizerParts, TokenKind, Vocabulary
from octavo.text.sentencepiece_model import SPACE, SentencePieceEncoder, spell_sentencepiece


def read_sentencepiece(path: Path, config: HfTokenizerConfig) -> TokenizerParts:
    """The parts of the tokenizer in `path`.

    Raises:
        ModelFileError: not a SentencePiece model, or added ids that do not follow its own.
    """
    processor = SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(path.read_bytes())
    except RuntimeError as error:
        raise ModelFileError(f"not a SentencePiece model: {error}", str(path)) from error
    vocabulary = _vocabulary(path, processor, config)
    ids = {vocabulary.pieces[i]: i for i in range(len(vocabulary))}
    bos_id = config.named_id("bos_token", ids)
    bos_ids = _found(processor.bos_id()) if bos_id is None else (bos_id,)
    return TokenizerParts(
        vocabulary=vocabulary,
        encoder=SentencePieceEncoder(
            processor,
            {vocabulary.pieces[i]: i for i in vocabulary.ids_of(TokenKind.CONTROL)},
            {vocabulary.pieces[i]: i for i in vocabulary.ids_of(TokenKind.USER_DEFINED)},
        ),
        bos_id=next(iter(bos_ids), None),
        eos_ids=config.eos_ids(ids, vocabulary) or _found(processor.eos_id()),
        prefix_ids=config.added_ids("bos_token", ids, bos_ids),
        suffix_ids=config.added_ids("eos_token", ids, ()),
        # Asked of the model's behaviour: its settings are not readable through the library.
        drops_first_space=processor.EncodeAsPieces("a")[0].startswith(SPACE),
    )


def _vocabulary(path: Path, processor: SentencePieceProcessor, config: HfTokenizerConfig) -> Vocabulary:
    pieces = [processor.IdToPiece(i) for i in range(processor.GetPieceSize())]
    kinds = bytearray(_kind(processor, i) for i in range(len(pieces)))
    for token_id, (spelling, special) in sorted(config.added_tokens().items()):
        if token_id < len(pieces):
            continue
        if token_id > len(pieces):
            problem = f"added token {spelling!r} has id {token_id}, but the next one is {len(pieces)}"
            raise ModelFileError(problem, str(path))
        pieces.append(spelling)
        kinds.append(TokenKind.CONTROL if special else TokenKind.USER_DEFINED)
    return Vocabulary(pieces, bytes(kinds), spell_sentencepiece)


def _kind(processor: SentencePieceProcessor, token_id: int) -> TokenKind:
    if processor.IsControl(token_id):
        return TokenKind.CONTROL
    if processor.IsUnknown(token_id):
        return TokenKind.UNKNOWN
    if processor.IsByte(token_id):
        return TokenKind.BYTE
    return TokenKind.UNUSED if processor.IsUnused(token_id) else TokenKind.NORMAL


def _found(token_id: int) -> tuple[int, ...]:
    return (token_id,) if token_id >= 0 else ()
