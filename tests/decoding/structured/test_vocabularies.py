"""Vocabularies of every kind of tokenizer, small and real: each token's bytes are those that it adds to a text."""

from pathlib import Path

import numpy as np
import pytest

from octavo.decoding.structured.backend import mask_words
from octavo.decoding.structured.llguidance_backend import LLGuidanceBackend, library_tokenizer
from octavo.decoding.structured.vocabulary import GrammarVocabulary, grammar_vocabulary
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from octavo.execution.loader.tiny.spec import Architecture
from octavo.request.structured import StructuredKind, StructuredSpec
from octavo.text.tokenizer import Tokenizer, from_gguf, from_hf
from tests.text import golden
from tests.text.vocabularies import byte_level, sentencepiece

REAL = ("smollm2", "gemma3", "qwen2")
TEXT = '{"name": "Zoë \U0001f600 日本", "n": [1, -2.5e3], "ok": true,\n  "t": "a\\"b\\\\"}'
ANY_OBJECT = StructuredSpec(kind=StructuredKind.JSON_OBJECT)


def check_bytes(tokenizer: Tokenizer, vocabulary: GrammarVocabulary, every: int = 1) -> None:
    """Against the tokenizer's bytes, which are tested against the reference libraries, and against decoding."""
    ids = range(tokenizer.vocab_size)
    assert vocabulary.token_bytes == tuple(tokenizer.token_bytes(token_id) for token_id in ids)
    assert vocabulary.special_ids == {token_id for token_id in ids if tokenizer.is_special(token_id)}
    for token_id in ids[::every]:
        shown = tokenizer.decode([token_id], continues=True)
        as_text = vocabulary.token_bytes[token_id].decode("utf-8", "replace")
        assert shown == ("" if token_id in vocabulary.special_ids else as_text)


def check_answer(tokenizer: Tokenizer, vocabulary: GrammarVocabulary) -> None:
    """The tokenizer's own way to write an object is allowed token by token, and then one of its end tokens."""
    matcher = LLGuidanceBackend(vocabulary).compile(ANY_OBJECT).matcher(tokenizer.eos_ids)
    row = np.zeros(mask_words(vocabulary.size), np.int32)
    ids = tokenizer.encode(TEXT, add_special=False)
    if tokenizer.drops_first_space:
        ids = vocabulary.encode("\n" + TEXT)
        start = next(n for n in range(len(ids)) if b"".join(vocabulary.token_bytes[i] for i in ids[:n]).endswith(b"\n"))
        ids = ids[start:]
    for token_id in ids:
        matcher.fill_mask(row)
        assert row[token_id // 32] >> (token_id % 32) & 1, vocabulary.token_bytes[token_id]
        assert not matcher.can_end
        assert matcher.accept(token_id)
    matcher.fill_mask(row)
    allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
    assert set(allowed) == set(tokenizer.eos_ids)


SMALL = {"byte-level GGUF": lambda: from_gguf(byte_level()), "SentencePiece GGUF": lambda: from_gguf(sentencepiece())}


@pytest.mark.parametrize("kind", SMALL)
def test_small_vocabularies(kind: str) -> None:
    tokenizer = SMALL[kind]()
    check_bytes(tokenizer, grammar_vocabulary(tokenizer))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3"])
def test_tiny_models(architecture: Architecture, tmp_path: Path) -> None:
    tokenizer = from_hf(
        write_tiny_model(tmp_path / "model", TinyModel(architecture=architecture), format="safetensors")
    )
    vocabulary = grammar_vocabulary(tokenizer)
    check_bytes(tokenizer, vocabulary)
    check_answer(tokenizer, vocabulary)


@pytest.mark.parametrize("model", REAL)
def test_real_models(model: str) -> None:
    tokenizer = golden.tokenizer(model)
    vocabulary = grammar_vocabulary(tokenizer)
    assert vocabulary.special_ids >= set(tokenizer.eos_ids)
    check_bytes(tokenizer, vocabulary, every=17)
    check_answer(tokenizer, vocabulary)


def test_the_library_holds_the_same_bytes() -> None:
    tokenizer = golden.tokenizer("smollm2")
    vocabulary = grammar_vocabulary(tokenizer)
    library = library_tokenizer(vocabulary)
    for token_id in range(vocabulary.size):
        if token_id not in vocabulary.special_ids:
            assert library.decode_bytes([token_id]) == vocabulary.token_bytes[token_id]
        assert library.is_special_token(token_id) == (token_id in vocabulary.special_ids)
