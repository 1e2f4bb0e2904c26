"""Small vocabularies written as GGUF metadata, so that most tests of text need no model file."""

from typing import Any

import numpy as np

from octavo.text.byte_level import CHARACTER_BY_BYTE

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

_MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "Ġ Ġ", "1 2", "Ċ Ċ"]
_CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_level(**changes: Any) -> dict[str, Any]:
    """A byte-level vocabulary: ids 0..255 are the bytes, then twelve merges, three control tokens and one
    user-defined token. `changes` replace `tokenizer.ggml.*` keys (None removes one)."""
    tokens = [*CHARACTER_BY_BYTE, *(merge.replace(" ", "") for merge in _MERGES), *_CONTROLS, "<tool>"]
    kinds = [NORMAL] * (256 + len(_MERGES)) + [CONTROL] * len(_CONTROLS) + [USER_DEFINED]
    return _metadata(
        {
            "model": "gpt2",
            "pre": "gpt-2",
            "tokens": tokens,
            "token_type": np.array(kinds, np.int32),
            "merges": list(_MERGES),
            "bos_token_id": tokens.index("<|im_start|>"),
            "eos_token_id": tokens.index("<|im_end|>"),
        },
        changes,
    )


def sentencepiece(**changes: Any) -> dict[str, Any]:
    """A SentencePiece vocabulary with byte fallback that puts a space before text: `<unk> <s> </s>`, 256 byte
    pieces (ids 3..258), words with better scores the longer they are, one user-defined token of two spaces."""
    words = ["▁", "h", "e", "l", "o", "he", "ll", "hell", "hello", "▁hello", "w", "▁w", "é", "▁x", "x"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words, "  ", "<turn>"]
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(words) + [USER_DEFINED, CONTROL]
    scores = [0.0] * 259 + [float(len(word)) for word in words] + [0.0, 0.0]
    return _metadata(
        {
            "model": "llama",
            "tokens": tokens,
            "scores": np.array(scores, np.float32),
            "token_type": np.array(kinds, np.int32),
            "bos_token_id": 1,
            "eos_token_id": 2,
            "unknown_token_id": 0,
        },
        changes,
    )


def _metadata(keys: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = {**keys, **changes}
    return {f"tokenizer.ggml.{key}": value for key, value in merged.items() if value is not None}
