"""Encoding beside other threads: long texts let them run, and only spellings of special tokens make one wait."""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.text import library_encoder
from octavo.text.library_encoder import LibraryEncoder
from octavo.text.tokenizer import from_gguf
from tests.text.vocabularies import byte_level

TOKENIZER = from_gguf(byte_level())


@pytest.fixture
def encoder() -> LibraryEncoder:
    made = TOKENIZER._parts.encoder
    assert isinstance(made, LibraryEncoder)
    return made


def test_other_threads_run_while_a_long_text_is_encoded() -> None:
    encoding = threading.Thread(target=TOKENIZER.encode, args=("hello x " * 200_000,))
    encoding.start()
    turns = 0
    while encoding.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 20


@given(text=st.text(max_size=20).filter(str.isascii), parse_special=st.booleans())
def test_long_texts_give_the_ids_of_short_ones(text: str, parse_special: bool) -> None:
    spelling = TOKENIZER.eos_token
    whole = f"{text}{spelling}{text}"
    short = TOKENIZER.encode(whole, parse_special=parse_special)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library_encoder, "LONG_TEXT_CHARS", 0)
        assert TOKENIZER.encode(whole, parse_special=parse_special) == short


@pytest.mark.parametrize("busy_with", [False, True])
def test_a_text_without_special_tokens_waits_for_nobody(encoder: LibraryEncoder, busy_with: bool) -> None:
    with encoder._switched(busy_with):
        assert encoder.encode("hello", parse_special=True) == encoder.encode("hello", parse_special=False)


def test_a_text_with_one_waits_for_those_that_read_it_otherwise(encoder: LibraryEncoder) -> None:
    spelling, eos_id = TOKENIZER.eos_token, TOKENIZER.eos_ids[0]
    read: list[list[int]] = []
    other = threading.Thread(target=lambda: read.append(encoder.encode(spelling, parse_special=True)))
    with encoder._switched(True):
        other.start()
        assert encoder.encode(spelling, parse_special=False) != [eos_id]
        assert not read
    other.join()
    assert read == [[eos_id]]
