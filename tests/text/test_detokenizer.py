"""Incremental detokenisation equals decoding at once, whatever the ids and however they come."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidRequestError
from octavo.text.detokenizer import IncrementalDetokenizer
from octavo.text.tokenizer import Tokenizer, from_gguf
from tests.text.vocabularies import byte_level, sentencepiece

BYTE_LEVEL = from_gguf(byte_level())
SENTENCEPIECE = from_gguf(sentencepiece())
WORDS = ["hello", " world", "😀", "中", "e\u0301", " x", "\n\n", "\ufffd"]


def stream(tokenizer: Tokenizer, parts: list[list[int]], **options: bool) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer, **options)
    return [*(detokenizer.push(part) for part in parts), detokenizer.flush()]


@st.composite
def partitions(draw: st.DrawFn) -> tuple[Tokenizer, list[list[int]]]:
    """Ids that often form characters, between ids that do not, cut into pushes."""
    tokenizer = draw(st.sampled_from([BYTE_LEVEL, SENTENCEPIECE]))
    anything = st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=5)
    words = st.sampled_from([tokenizer.encode(word, add_special=False) for word in WORDS])
    ids = [i for part in draw(st.lists(anything | words, max_size=6)) for i in part]
    cuts = sorted(place % (len(ids) + 1) for place in draw(st.lists(st.integers(0, 999), max_size=6)))
    return tokenizer, [ids[a:b] for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]


@given(partitions(), st.booleans(), st.booleans())
def test_deltas_of_any_partition_concatenate_to_decode(
    case: tuple[Tokenizer, list[list[int]]], skip_special: bool, continues: bool
) -> None:
    tokenizer, parts = case
    ids = [i for part in parts for i in part]
    deltas = stream(tokenizer, parts, skip_special=skip_special, continues=continues)
    assert "".join(deltas) == tokenizer.decode(ids, skip_special=skip_special, continues=continues)


@given(partitions())
def test_at_most_one_unfinished_character_is_held(case: tuple[Tokenizer, list[list[int]]]) -> None:
    tokenizer, parts = case
    assert stream(tokenizer, parts)[-1] in ("", "\ufffd")


def test_a_character_comes_whole() -> None:
    bytes_of_emoji = list("😀".encode())
    assert stream(BYTE_LEVEL, [[i] for i in bytes_of_emoji]) == ["", "", "", "😀", ""]


def test_an_unfinished_character_comes_with_the_flush() -> None:
    assert stream(BYTE_LEVEL, [[0xF0], [0x9F]]) == ["", "", "\ufffd"]


def test_bytes_that_can_begin_nothing_come_at_once() -> None:
    assert stream(BYTE_LEVEL, [[0xFF], [0xFF], [ord("a")]]) == ["\ufffd", "\ufffd", "a", ""]


def test_a_broken_character_gives_way_to_what_follows() -> None:
    assert stream(BYTE_LEVEL, [[0xE4], [0xB8], [ord("a")]]) == ["", "", "\ufffda", ""]


def test_cost_per_token_does_not_grow_on_invalid_bytes() -> None:
    def seconds(count: int) -> float:
        detokenizer = IncrementalDetokenizer(BYTE_LEVEL)
        start = time.thread_time()
        for _ in range(count):
            detokenizer.push((0xFF,))
        return time.thread_time() - start

    # Four times the tokens cost 16 times as much if the cost is quadratic; 8 leaves room for noise.
    few, many = (min(seconds(count) for _ in range(3)) for count in (20_000, 80_000))
    assert many < 8 * few


def test_the_space_that_the_encoder_added_is_dropped_once() -> None:
    space_x, x = SENTENCEPIECE.vocab_size - 4, SENTENCEPIECE.vocab_size - 3
    assert SENTENCEPIECE.encode("xx x", add_special=False) == [space_x, x, space_x]
    assert stream(SENTENCEPIECE, [[space_x], [space_x], [x]]) == ["x", " x", "x", ""]
    assert stream(SENTENCEPIECE, [[space_x], [space_x]], continues=True) == [" x", " x", ""]


def test_a_byte_level_leading_space_stays() -> None:
    assert stream(BYTE_LEVEL, [BYTE_LEVEL.encode(" world", add_special=False)]) == [" world", ""]


def test_special_tokens_in_the_middle() -> None:
    ids = [*BYTE_LEVEL.encode("hello"), BYTE_LEVEL.eos_ids[0], *BYTE_LEVEL.encode(" world")]
    assert "".join(stream(BYTE_LEVEL, [[i] for i in ids])) == "hello world"
    assert "".join(stream(BYTE_LEVEL, [[i] for i in ids], skip_special=False)) == "hello<|im_end|> world"


def test_an_unknown_id_is_refused() -> None:
    for token_id in (-1, BYTE_LEVEL.vocab_size, 2**40):
        with pytest.raises(InvalidRequestError, match="token ids run from 0 to"):
            IncrementalDetokenizer(BYTE_LEVEL).push([token_id])
