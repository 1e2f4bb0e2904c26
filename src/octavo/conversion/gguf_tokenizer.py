"""tokenizer.json in GGUF's keys: vocabulary, merges or scores, the ids that begin and end texts, the chat template.

A GGUF file names the rule by which a byte-level vocabulary cuts text, and has no way to spell it out. The rule is
recognised by what it does to texts that tell rules apart, and the whole is tried: the tokenizer that reads the new keys
must give the same ids as the folder's for all of these texts. Otherwise the conversion is refused.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer as LibraryTokenizer

from octavo.conversion.tokenizer_probes import PROBES
from octavo.errors import UnsupportedModelError
from octavo.execution.loader.gguf_writer import Value
from octavo.execution.loader.json_file import read_json_object
from octavo.text.gguf_metadata import NUM_TOKENS
from octavo.text.hf import read_hf
from octavo.text.parts import TokenizerParts, TokenKind
from octavo.text.pretokenizers import BPE_RULES, BpeRule
from octavo.text.template_source import template_from_hf
from octavo.text.tokenizer import Tokenizer, from_gguf

log = logging.getLogger(__name__)

_FILE = "tokenizer.json"
_ADVICE = "quantise this model while it loads (--quantization), or write --format safetensors, which keeps tokenizers"
_END_ROLES = ("eos", "eot", "eom")


def tokenizer_metadata(folder: Path, vocab_size: int) -> dict[str, Value]:
    """The keys `tokenizer.*` of a folder's tokenizer.

    Args:
        vocab_size: rows of the embedding: ids behind the tokenizer's own are named as padding, and never drawn.

    Raises:
        UnsupportedModelError: there is none, or GGUF has no way to say what it does.
        ModelFileError: it is damaged.
    """
    path = folder / _FILE
    if not path.is_file():
        raise UnsupportedModelError(f"{folder}: has no {_FILE}, from which a GGUF file's tokenizer is made; {_ADVICE}")
    parts, document = read_hf(folder), read_json_object(path)
    keys = _ids(path, parts) | _vocabulary(parts, vocab_size)
    pieces = keys["tokens"].value
    keys |= _byte_level(path, document) if _is_byte_level(path, document) else _by_scores(pieces, document)
    metadata = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
    if vocab_size > len(parts.vocabulary):
        metadata[NUM_TOKENS] = Value("u32", len(parts.vocabulary))
    template = template_from_hf(folder)
    if template is not None:
        metadata["tokenizer.chat_template"] = Value("str", template)
    _try(path, Tokenizer(parts), from_gguf(plain(metadata)))
    return metadata


def plain(metadata: Mapping[str, Value]) -> dict[str, Any]:
    """Values as a reader of the file has them."""
    return {key: np.asarray(v.value) if v.type in ("[i32]", "[f32]") else v.value for key, v in metadata.items()}


def _refused(path: Path, problem: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"{path}: {problem}; {_ADVICE}")


def _vocabulary(parts: TokenizerParts, vocab_size: int) -> dict[str, Value]:
    padding = max(0, vocab_size - len(parts.vocabulary))
    pieces = [*parts.vocabulary.pieces, *[""] * padding]
    return {
        "tokens": Value("[str]", [piece or f"[PAD{i}]" for i, piece in enumerate(pieces)]),
        "token_type": Value("[i32]", [*parts.vocabulary.kinds, *[int(TokenKind.UNUSED)] * padding]),
    }


def _ids(path: Path, parts: TokenizerParts) -> dict[str, Value]:
    """Which ids begin and end texts.

    Raises:
        UnsupportedModelError: it puts others around texts than one at either end.
    """
    first_eos = parts.eos_ids[:1]
    if parts.prefix_ids not in ((), (parts.bos_id,)) or parts.suffix_ids not in ((), first_eos):
        around = f"{list(parts.prefix_ids)} before and {list(parts.suffix_ids)} behind texts"
        raise _refused(path, f"puts the ids {around}, where GGUF knows one BOS and one EOS")
    ends = zip(_END_ROLES, parts.eos_ids, strict=False)
    found = {f"{role}_token_id": Value("u32", token_id) for role, token_id in ends}
    if parts.bos_id is not None:
        found["bos_token_id"] = Value("u32", parts.bos_id)
    return found | {
        "add_bos_token": Value("bool", bool(parts.prefix_ids)),
        "add_eos_token": Value("bool", bool(parts.suffix_ids)),
        "add_space_prefix": Value("bool", parts.drops_first_space),
    }


def _is_byte_level(path: Path, document: Mapping[str, Any]) -> bool:
    """
    Raises:
        UnsupportedModelError: it does not merge pairs.
    """
    kind = document.get("model", {}).get("type")
    if kind != "BPE":
        raise _refused(path, f"is a {kind} model; Octavo writes GGUF files of BPE models")
    return "ByteLevel" in json.dumps(document.get("decoder"))


def _merges(document: Mapping[str, Any]) -> list[str]:
    """Pairs with a space between, best first; files have them so, or as lists."""
    return [merge if isinstance(merge, str) else " ".join(merge) for merge in document["model"]["merges"]]


def _byte_level(path: Path, document: Mapping[str, Any]) -> dict[str, Value]:
    library = LibraryTokenizer.from_file(str(path))
    ignore_merges = bool(document["model"].get("ignore_merges", False))
    words = [_cut(library.normalizer, library.pre_tokenizer, text) for text in PROBES]
    for name, rule in BPE_RULES.items():
        if rule.ignore_merges == ignore_merges and words == _words_of(rule):
            return {
                "model": Value("str", "gpt2"),
                "pre": Value("str", name),
                "merges": Value("[str]", _merges(document)),
            }
    raise _refused(path, f"cuts text by a rule for which GGUF has no name that Octavo knows ({', '.join(BPE_RULES)})")


def _words_of(rule: BpeRule) -> list[list[str]]:
    normalizer = None if rule.normalizer is None else rule.normalizer()
    stages = rule.pre_tokenizer()
    return [_cut(normalizer, stages, text) for text in PROBES]


def _cut(normalizer: Any, stages: Any, text: str) -> list[str]:
    normal = text if normalizer is None else normalizer.normalize_str(text)
    return [normal] if stages is None else [word for word, _ in stages.pre_tokenize_str(normal)]


def _by_scores(pieces: Sequence[str], document: Mapping[str, Any]) -> dict[str, Value]:
    """SentencePiece's way: of two neighbours that can be joined those that make the piece of the best score."""
    ids = {piece: i for i, piece in enumerate(pieces)}
    scores = np.zeros(len(pieces), np.float32)
    for rank, merge in enumerate(_merges(document)):
        joined = ids.get("".join(merge.split(" ")))
        if joined is not None and scores[joined] == 0:
            scores[joined] = -float(rank + 1)
    found = {"model": Value("str", "llama"), "pre": Value("str", "default")}
    unknown = document["model"].get("unk_token")
    if unknown in ids:
        found["unknown_token_id"] = Value("u32", ids[unknown])
    return found | {"scores": Value("[f32]", scores.tolist())}


def _try(path: Path, theirs: Tokenizer, ours: Tokenizer) -> None:
    """
    Raises:
        UnsupportedModelError: the two give different ids or texts.
    """
    spelled = " ".join(list(theirs.control_tokens())[:64])
    for text in chain(PROBES, [spelled]):
        for parse_special in (False, True):
            expected = theirs.encode(text, parse_special=parse_special)
            found = ours.encode(text, parse_special=parse_special)
            if found != expected or ours.decode(found) != theirs.decode(expected):
                problem = f"{text[:40]!r} would be {found[:8]} and not {expected[:8]}"
                raise _refused(path, f"GGUF's keys cannot say what it does: {problem}")
    _tell_other_ends(path, theirs, ours)


def _tell_other_ends(path: Path, theirs: Tokenizer, ours: Tokenizer) -> None:
    more = [i for i in ours.eos_ids if i not in theirs.eos_ids]
    if more:
        log.warning(
            "%s: answers of the new file also end at %s, which readers of GGUF files take for an end by its spelling;"
            " those of the folder go on. For the same answers add %s to eos_token_id in its generation_config.json",
            path, _spelled(ours, more), more,
        )  # fmt: skip
    fewer = [i for i in theirs.eos_ids if i not in ours.eos_ids]
    if fewer:
        log.warning(
            "%s: answers of the folder end at %s, those of the new file go on: GGUF has no key for so many ends."
            " For the same answers ask for stop_token_ids=%s",
            path, _spelled(theirs, fewer), fewer,
        )  # fmt: skip


def _spelled(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return ", ".join(f"{tokenizer.token_bytes(i).decode('utf-8', 'replace')!r} ({i})" for i in ids)
