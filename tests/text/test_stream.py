"""One answer's text: every partition of the ids gives the same text, the same ids and the same stop."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.text.stream import TextStream
from octavo.text.tokenizer import Tokenizer, from_gguf
from tests.text.vocabularies import byte_level, sentencepiece

BYTE_LEVEL = from_gguf(byte_level())
SENTENCEPIECE = from_gguf(sentencepiece())
WORDS = ["hello", " world", "12", "\n\n", "é", "😀", "  ", "<|im_end|>", "x"]


class Answer:
    """Everything that a stream gave for a list of pushes."""

    def __init__(self, stream: TextStream, parts: Sequence[Sequence[int]], stop_token: bool = False) -> None:
        self.deltas: list[str] = []
        self.ids: list[int] = []
        self.offsets: list[int] = []
        self.stop: str | None = None
        for at, part in enumerate(parts):
            last = at == len(parts) - 1
            self.add(part, stream.push(part, ends_with_stop_token=stop_token and last))
        self.add((), stream.flush())
        self.text = "".join(self.deltas)

    def add(self, part: Sequence[int], delta: object) -> None:
        self.deltas.append(delta.text)
        self.ids.extend(part[: delta.num_tokens])
        self.offsets.extend(delta.text_offsets)
        self.stop = delta.stop

    def summary(self) -> tuple[object, ...]:
        return self.text, self.ids, self.offsets, self.stop


def byte_ids(text: str) -> list[int]:
    return list(text.encode())


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tokenizer, list[int], list[str]]:
    tokenizer = draw(st.sampled_from([BYTE_LEVEL, SENTENCEPIECE]))
    text = "".join(draw(st.lists(st.sampled_from(WORDS), max_size=10)))
    ids = tokenizer.encode(text, add_special=False, parse_special=True)
    ids += draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=3))
    full = tokenizer.decode(ids)
    spans = st.tuples(st.integers(0, max(len(full) - 1, 0)), st.integers(1, 6))
    stops = [full[a : a + size] for a, size in draw(st.lists(spans, max_size=2))]
    return (
        tokenizer,
        ids,
        [stop for stop in (*stops, *draw(st.lists(st.sampled_from(WORDS), max_size=1))) if stop],
    )


def cut(ids: list[int], places: list[int]) -> list[list[int]]:
    cuts = sorted(place % (len(ids) + 1) for place in places)
    return [ids[a:b] for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]


@given(cases(), st.lists(st.integers(0, 1000), max_size=6), st.booleans(), st.integers(0, 4))
def test_every_partition_gives_the_same(
    case: tuple[Tokenizer, list[int], list[str]], places: list[int], include_stop: bool, min_tokens: int
) -> None:
    tokenizer, ids, stops = case

    def answer(parts: list[list[int]]) -> tuple[object, ...]:
        options = {"stops": stops, "include_stop": include_stop, "min_tokens": min_tokens}
        return Answer(TextStream(tokenizer, **options), parts).summary()

    assert answer(cut(ids, places)) == answer([[i] for i in ids]) == answer([ids])


@given(cases(), st.booleans())
def test_text_and_ids_end_at_the_first_match(case: tuple[Tokenizer, list[int], list[str]], include_stop: bool) -> None:
    tokenizer, ids, stops = case
    answer = Answer(TextStream(tokenizer, stops=stops, include_stop=include_stop), [ids])
    if answer.stop is None:
        assert (answer.text, answer.ids) == (tokenizer.decode(ids), ids)
        return
    # The kept ids hold the stop, and without the last of them they do not; but an unfinished character at the end
    # reads as U+FFFD, which may itself be part of a stop.
    assert answer.stop in tokenizer.decode(answer.ids)
    shorter = tokenizer.decode(answer.ids[:-1])
    assert answer.stop not in shorter or shorter.endswith("\ufffd")
    assert answer.text.endswith(answer.stop) if include_stop else answer.stop not in answer.text


def test_the_completing_token_is_the_last_one() -> None:
    stream = TextStream(BYTE_LEVEL, stops=["ha ha"])
    delta = stream.push(byte_ids("say ha ha ha"))
    assert (delta.text, delta.num_tokens, delta.stop) == ("say ", len("say ha ha"), "ha ha")
    assert len(delta.text_offsets) == delta.num_tokens


def test_a_stop_character_cut_into_tokens() -> None:
    stream = TextStream(BYTE_LEVEL, stops=["😀"])
    pushes = [stream.push([i]) for i in byte_ids("a😀b")]
    assert [p.text for p in pushes[:5]] == ["a", "", "", "", ""]
    assert [p.stop for p in pushes[:5]] == [None, None, None, None, "😀"]
    assert pushes[5].num_tokens == 0


def test_held_text_comes_with_the_flush() -> None:
    answer = Answer(TextStream(BYTE_LEVEL, stops=["x" * 40]), [byte_ids("abc" + "x" * 30)])
    assert answer.text == "abc" + "x" * 30
    assert answer.stop is None


def test_the_first_token_is_the_stop() -> None:
    answer = Answer(TextStream(BYTE_LEVEL, stops=["\n"]), [[10]])
    assert answer.summary() == ("", [10], [0], "\n")


def test_min_tokens_hides_early_stops() -> None:
    answer = Answer(TextStream(BYTE_LEVEL, stops=["a"], min_tokens=3), [byte_ids("aaaba")])
    assert (answer.text, answer.ids) == ("aaab", byte_ids("aaaba"))


def test_min_tokens_hides_a_stop_in_the_flush() -> None:
    assert Answer(TextStream(BYTE_LEVEL, stops=["\ufffd"], min_tokens=1), [[0xF0]]).stop is None
    assert Answer(TextStream(BYTE_LEVEL, stops=["\ufffd"]), [[0xF0]]).stop == "\ufffd"


@pytest.mark.parametrize(("include_stop", "text"), [(False, "ab"), (True, "abz")])
def test_a_stop_token_gives_no_text_unless_included(include_stop: bool, text: str) -> None:
    stream = TextStream(BYTE_LEVEL, include_stop=include_stop)
    answer = Answer(stream, [byte_ids("ab"), byte_ids("z")], stop_token=True)
    assert (answer.text, answer.ids) == (text, byte_ids("abz"))


def test_a_stop_token_and_a_held_stop_string() -> None:
    answer = Answer(TextStream(BYTE_LEVEL, stops=["abc"]), [[*byte_ids("ab"), BYTE_LEVEL.eos_ids[0]]], stop_token=True)
    assert (answer.text, answer.stop, len(answer.ids)) == ("ab", None, 3)


def test_offsets_are_those_of_the_whole_text() -> None:
    ids = [*BYTE_LEVEL.encode("hello world"), *byte_ids("é!"), BYTE_LEVEL.eos_ids[0]]
    answer = Answer(TextStream(BYTE_LEVEL), [ids[:1], ids[1:]])
    assert answer.text == "hello worldé!"
    assert answer.offsets == [0, 5, 11, 11, 12, 13]


def test_no_stops_emits_at_once() -> None:
    assert TextStream(BYTE_LEVEL).push(byte_ids("abc")).text == "abc"
