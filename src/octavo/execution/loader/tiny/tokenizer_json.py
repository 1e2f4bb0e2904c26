"""A vocabulary as `tokenizer.json` of the tokenizers library, one pipeline per convention."""

from __future__ import annotations

from typing import Any

from octavo.execution.loader.tiny.spec import TinyModel
from octavo.execution.loader.tiny.vocabulary import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocabulary

_QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_ADDED = (CONTROL, UNKNOWN, USER_DEFINED)
_REPLACE_SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
_RESTORE_SPACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}


def tokenizer_json(model: TinyModel, vocabulary: Vocabulary) -> dict[str, Any]:
    """The whole document."""
    pipeline = _byte_level(model) if vocabulary.kind == "bpe" else _sentence_piece(vocabulary)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(vocabulary, i) for i, kind in enumerate(vocabulary.types) if kind in _ADDED],
        **pipeline,
        "post_processor": _post_processor(vocabulary),
        "model": _bpe(vocabulary),
    }


def tokenizer_config(vocabulary: Vocabulary) -> dict[str, Any]:
    """`tokenizer_config.json`: special tokens by role and the chat template."""
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": vocabulary.add_bos,
        "add_eos_token": False,
        "bos_token": vocabulary.tokens[vocabulary.bos],
        "eos_token": vocabulary.tokens[vocabulary.eos],
        "pad_token": vocabulary.tokens[vocabulary.pad],
        "clean_up_tokenization_spaces": False,
    }
    if vocabulary.unknown is not None:
        config["unk_token"] = vocabulary.tokens[vocabulary.unknown]
    if vocabulary.chat_template is not None:
        config["chat_template"] = vocabulary.chat_template
    return config


def _added_token(vocabulary: Vocabulary, token_id: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    special = vocabulary.types[token_id] != USER_DEFINED
    return {"id": token_id, "content": vocabulary.tokens[token_id], **flags, "special": special}


def _byte_level(model: TinyModel) -> dict[str, Any]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    if model.architecture == "gpt2":
        words = [{**byte_level, "use_regex": True}]
        normalizer = None
    elif model.kin == "llama":
        words = [{"type": "Digits", "individual_digits": True}, {**byte_level, "use_regex": True}]
        normalizer = None
    else:
        split = {"type": "Split", "pattern": {"Regex": _QWEN2_WORDS}, "behavior": "Isolated", "invert": False}
        words = [split, {**byte_level, "use_regex": False}]
        normalizer = {"type": "NFC"}
    return {
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": words},
        "decoder": {**byte_level, "use_regex": True},
    }


def _sentence_piece(vocabulary: Vocabulary) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [_RESTORE_SPACE, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if not vocabulary.add_space_prefix:
        by_space = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
        return {
            "normalizer": _REPLACE_SPACE,
            "pre_tokenizer": by_space,
            "decoder": {"type": "Sequence", "decoders": steps},
        }
    prefix = {"type": "Prepend", "prepend": "▁"}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return {
        "normalizer": {"type": "Sequence", "normalizers": [prefix, _REPLACE_SPACE]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": [*steps, strip]},
    }


def _post_processor(vocabulary: Vocabulary) -> dict[str, Any] | None:
    if not vocabulary.add_bos:
        return None
    bos = vocabulary.tokens[vocabulary.bos]
    first: dict[str, Any] = {"SpecialToken": {"id": bos, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [first, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [first, {"Sequence": {"id": "A", "type_id": 0}}, first, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {bos: {"id": bos, "ids": [vocabulary.bos], "tokens": [bos]}},
    }


def _bpe(vocabulary: Vocabulary) -> dict[str, Any]:
    """Added tokens with ids among the others' are the model's, too, as in files of GPT-2's kind: the library numbers
    all that are not from the size of the model on, whatever their ids."""
    is_spm = vocabulary.kind == "spm"
    real = range(vocabulary.num_real)
    last = max(i for i in real if vocabulary.types[i] not in _ADDED)
    in_model = {i for i in real if vocabulary.types[i] in (NORMAL, BYTE, UNKNOWN) or is_spm or i < last}
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None if vocabulary.unknown is None or not is_spm else vocabulary.tokens[vocabulary.unknown],
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": is_spm,
        "byte_fallback": is_spm,
        "ignore_merges": False,
        "vocab": {vocabulary.tokens[i]: i for i in sorted(in_model)},
        "merges": [list(merge) for merge in vocabulary.merges],
    }
