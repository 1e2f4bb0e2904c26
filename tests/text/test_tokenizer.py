"""What holds for every tokenizer, and what is refused."""

import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidRequestError, ModelFileError, OctavoError, UnsupportedModelError
from octavo.text.gguf_metadata import NUM_TOKENS, num_tokens
from octavo.text.tokenizer import Tokenizer, from_gguf
from tests.text import golden
from tests.text.vocabularies import BYTE, CONTROL, NORMAL, byte_level, sentencepiece

BYTE_LEVEL = from_gguf(byte_level())
SENTENCEPIECE = from_gguf(sentencepiece())
BOTH = pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, SENTENCEPIECE], ids=["byte_level", "sentencepiece"])


def id_of(tokenizer: Tokenizer, spelling: str) -> int:
    return next(i for i in range(tokenizer.vocab_size) if tokenizer.token_bytes(i) == spelling.encode())


@BOTH
def test_merges_are_used(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("hello", add_special=False)
    assert len(ids) == 1


@BOTH
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2581"), max_size=30))
def test_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text, add_special=False)) == text


@BOTH
def test_special_tokens_in_text_are_text_unless_asked(tokenizer: Tokenizer) -> None:
    for eos_id in tokenizer.eos_ids:
        spelling = tokenizer.token_bytes(eos_id).decode()
        assert eos_id not in tokenizer.encode(f"a{spelling}b")
        assert tokenizer.encode(spelling, add_special=False, parse_special=True) == [eos_id]
        plain = tokenizer.encode(f"a{spelling}b", add_special=False)
        assert tokenizer.decode(plain) == f"a{spelling}b"


def test_user_defined_tokens_are_found_in_plain_text() -> None:
    assert BYTE_LEVEL.encode("a<tool>", add_special=False) == [ord("a"), id_of(BYTE_LEVEL, "<tool>")]
    double_space = id_of(SENTENCEPIECE, "  ")
    assert double_space in SENTENCEPIECE.encode("x  x", add_special=False)


@BOTH
def test_is_special(tokenizer: Tokenizer) -> None:
    assert all(tokenizer.is_special(i) for i in tokenizer.eos_ids)
    assert not any(tokenizer.is_special(i) for i in tokenizer.encode("hello x", add_special=False))


@BOTH
def test_decode_skips_control_tokens_unless_asked(tokenizer: Tokenizer) -> None:
    ids = [*tokenizer.encode("x", add_special=False), tokenizer.eos_ids[0]]
    assert tokenizer.decode(ids) == "x"
    assert tokenizer.decode(ids, skip_special=False).endswith(f"x{tokenizer.eos_token}")


def test_bytes_are_joined_before_they_are_read() -> None:
    assert BYTE_LEVEL.decode("中文".encode()) == "中文"
    assert BYTE_LEVEL.decode([0xFF, 0xE4, 0xB8]) == "\ufffd\ufffd"
    assert SENTENCEPIECE.decode([byte + 3 for byte in "中".encode()]) == "中"


def test_add_special() -> None:
    assert BYTE_LEVEL.encode("x") == [ord("x")]
    assert SENTENCEPIECE.encode("x") == [1, *SENTENCEPIECE.encode("x", add_special=False)]
    both = from_gguf(byte_level(add_bos_token=True, add_eos_token=True))
    assert both.encode("x") == [both.bos_id, ord("x"), both.eos_ids[0]]


def test_a_chat_prompt_begins_with_one_bos() -> None:
    for rendered in ("<s>hello", "hello"):
        ids = SENTENCEPIECE.encode_chat(rendered)
        assert (ids[0], ids.count(1)) == (1, 1)
    assert BYTE_LEVEL.encode_chat("<|im_start|>x<|im_end|>").count(BYTE_LEVEL.bos_id) == 1
    assert BYTE_LEVEL.encode_chat("x") == [ord("x")]


def test_end_of_generation_ids_come_from_keys_and_spellings() -> None:
    tokens = byte_level()["tokenizer.ggml.tokens"]
    assert [tokens[i] for i in BYTE_LEVEL.eos_ids] == ["<|im_end|>", "<|endoftext|>"]
    keys = from_gguf(byte_level(eos_token_id=5, eot_token_id=6, eom_token_id=7)).eos_ids
    assert keys[:3] == (5, 6, 7)


def test_only_control_tokens_end_a_generation_by_spelling() -> None:
    kinds = byte_level()["tokenizer.ggml.token_type"].copy()
    kinds[kinds == CONTROL] = NORMAL
    assert from_gguf(byte_level(token_type=kinds, eos_token_id=None)).eos_ids == ()


def test_a_harmony_message_end_is_no_end() -> None:
    metadata = byte_level()
    tokens = [*metadata["tokenizer.ggml.tokens"], "<|end|>", "<|return|>", "<|call|>"]
    kinds = [*metadata["tokenizer.ggml.token_type"], CONTROL, CONTROL, CONTROL]
    tokenizer = from_gguf(byte_level(tokens=tokens, token_type=kinds))
    ends = [tokens[i] for i in tokenizer.eos_ids]
    assert "<|return|>" in ends
    assert "<|end|>" not in ends


@BOTH
@pytest.mark.parametrize("token_id", [-1, -(2**40), 2**40])
def test_ids_outside_the_vocabulary_are_refused(tokenizer: Tokenizer, token_id: int) -> None:
    for use in (tokenizer.token_bytes, tokenizer.is_special, lambda i: tokenizer.decode([i])):
        with pytest.raises(InvalidRequestError, match=f"token ids run from 0 to {tokenizer.vocab_size - 1}"):
            use(token_id)


@BOTH
def test_half_a_surrogate_pair_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidRequestError, match="character 2 is half of a surrogate pair"):
        tokenizer.encode("ab\ud83d")


@BOTH
def test_threads_may_share_one(tokenizer: Tokenizer) -> None:
    """Reading of special tokens is a switch inside the library: two threads must not see each other's."""
    text = f"hello {tokenizer.eos_token} x"
    expected = {flag: tokenizer.encode(text, parse_special=flag) for flag in (False, True)}
    wrong: list[bool] = []

    def encode(flag: bool) -> None:
        wrong.extend(flag for _ in range(300) if tokenizer.encode(text, parse_special=flag) != expected[flag])

    threads = [threading.Thread(target=encode, args=(flag,)) for flag in (False, True) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("build", [byte_level, sentencepiece])
@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("tokens", None, "tokens is missing"),
        ("tokens", [], "tokens is empty"),
        ("tokens", "abc", "tokens is 'abc', but must be a list of strings"),
        ("tokens", [1, 2], "tokens is list, but must be a list of strings"),
        ("token_type", [1, 2], r"token_type has shape \(2,\)"),
        ("token_type", "x", "token_type is 'x', but must be a list of numbers"),
        ("bos_token_id", 10**9, "bos_token_id is 1000000000, but must be an id from 0 to"),
        ("bos_token_id", "x", "bos_token_id is 'x'"),
        ("eos_token_id", -1, "eos_token_id is -1"),
        ("add_bos_token", 3, "add_bos_token is 3, but must be a boolean"),
    ],
)
def test_damaged_keys_are_named(build: Any, key: str, value: Any, fault: str) -> None:
    with pytest.raises(ModelFileError, match=f"^tokenizer.ggml.{fault}"):
        from_gguf(build(**{key: value}))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"merges": None}, "merges is missing"),
        ({"merges": ["ab"]}, r"merges\[0\] is not two pieces"),
        ({"merges": ["h nosuch"]}, "merges do not fit tokenizer.ggml.tokens"),
        ({"bos_token_id": None, "add_bos_token": True}, "add_bos_token is true, but tokenizer.ggml.bos_token_id"),
        ({"token_type": [7] * 272}, "token_type holds values outside"),
        ({"pre": 3}, "pre is 3, but must be a string"),
    ],
)
def test_damaged_byte_level_keys_are_named(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ModelFileError, match=f"^tokenizer.ggml.{fault}"):
        from_gguf(byte_level(**changes))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"scores": [1.0]}, r"scores has shape \(1,\)"),
        ({"scores": np.full(276, np.nan)}, "scores holds a value that is not a finite number"),
        ({"tokens": ["a"] * 276, "token_type": None}, "tokens is not a usable SentencePiece vocabulary"),
        ({"unknown_token_id": 999}, "unknown_token_id is 999"),
    ],
)
def test_damaged_sentencepiece_keys_are_named(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ModelFileError, match=f"^tokenizer.ggml.{fault}"):
        from_gguf(sentencepiece(**changes))


@pytest.mark.parametrize("build", [byte_level, sentencepiece])
def test_a_byte_piece_must_name_a_byte(build: Any) -> None:
    metadata = build()
    kinds = [BYTE] * len(metadata["tokenizer.ggml.token_type"])
    with pytest.raises(ModelFileError, match="token 0 is typed as a byte, but spelled"):
        from_gguf({**metadata, "tokenizer.ggml.token_type": kinds})


def test_unknown_families_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.ggml\.model='t5': .* families: gpt2, llama"):
        from_gguf(byte_level(model="t5"))
    with pytest.raises(ModelFileError, match=r"tokenizer\.ggml\.model is missing"):
        from_gguf({})


_DAMAGE = st.sampled_from(
    [None, 0, -1, 2**70, 1.5, "", "x", b"x", [], [None], [[]], {}, ["a b"], [2**70], np.zeros(3), True]
)


@given(st.sampled_from([byte_level, sentencepiece]), st.data())
def test_no_damage_gives_anything_but_an_error_of_ours(build: Any, data: st.DataObject) -> None:
    keys = sorted(key.removeprefix("tokenizer.ggml.") for key in build())
    changes = data.draw(st.dictionaries(st.sampled_from(keys), _DAMAGE, min_size=1, max_size=3))
    try:
        tokenizer = from_gguf(build(**changes))
    except OctavoError:
        return
    tokenizer.decode(tokenizer.encode("hello x", parse_special=True))


@pytest.mark.parametrize("model", golden.ALIASES)
@pytest.mark.parametrize(
    "text", ["a" * 100_000, " " * 100_000 + "x", "\n " * 50_000, "<" * 100_000, "中文" * 50_000, "<|" * 50_000]
)
def test_no_text_is_quadratic(model: str, text: str) -> None:
    tokenizer = golden.tokenizer(model)

    def seconds(text: str) -> float:
        start = time.thread_time()
        tokenizer.encode(text, parse_special=True)
        return time.thread_time() - start

    # Eight times the text costs 64 times as much if the cost is quadratic.
    assert seconds(text) < 24 * max(seconds(text[: len(text) // 8]), 0.002)


def test_a_file_may_say_how_many_ids_are_tokens() -> None:
    metadata = byte_level()
    size = len(metadata["tokenizer.ggml.tokens"])
    assert num_tokens(metadata, 9999) == size
    assert num_tokens({**metadata, NUM_TOKENS: size - 3}, 9999) == size - 3
    assert num_tokens({}, 9999) == 9999
    for wrong in (0, size + 1, "7", True, None, 7.0):
        with pytest.raises(ModelFileError, match=f"octavo.num_tokens is .*, but must be a number from 1 to {size}"):
            num_tokens({**metadata, NUM_TOKENS: wrong}, 9999)
