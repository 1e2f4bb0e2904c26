"""A bound that lets a text be refused before it is encoded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidRequestError
from octavo.text.byte_level import CHARACTER_BY_BYTE
from octavo.text.tokenizer import Tokenizer, from_gguf

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


def tokenizer(pre: str) -> Tokenizer:
    """Bytes, runs of a, a long control token and a user-defined one."""
    tokens = [*CHARACTER_BY_BYTE, "aa", "aaaa", "aaaaaaaa", "<|a long control token|>", "ωωωωωω"]
    return from_gguf(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": pre,
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [NORMAL] * 259 + [CONTROL, USER_DEFINED],
            "tokenizer.ggml.merges": ["a a", "aa aa", "aaaa aaaa"],
            "tokenizer.ggml.eos_token_id": 259,
        }
    )


PIECES = st.sampled_from(
    ["a", "aaaaaaaa", "ω" * 6, "<|a long control token|>", "각", "\u1100\u1161\u11a8", "e\u0301", " "]
)


@pytest.mark.parametrize("pre", ["gpt-2", "qwen2"])
@given(texts=st.lists(PIECES, max_size=30), parse_special=st.booleans())
def test_no_text_has_fewer_tokens(pre: str, texts: list[str], parse_special: bool) -> None:
    made, text = tokenizer(pre), "".join(texts)
    assert made.least_tokens(text) <= len(made.encode(text, parse_special=parse_special))


def test_a_long_text_certainly_has_many() -> None:
    made = tokenizer("gpt-2")
    assert made.least_tokens("b" * 2400) == 100
    assert made.least_tokens("") == 0


def test_a_text_of_too_many_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.text.library_encoder.MAX_TOKENS", 2500)
    made = tokenizer("gpt-2")
    assert len(made.encode("b" * 2500)) == 2500
    with pytest.raises(InvalidRequestError, match="'2501 tokens': one text has at most 2500"):
        made.encode("b" * 2501)
