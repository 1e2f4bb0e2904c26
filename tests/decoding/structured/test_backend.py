"""Compiled grammars and matchers on the small vocabulary: what is allowed, accepted, taken back, copied."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.decoding.structured.backend import Matcher, mask_words
from octavo.decoding.structured.llguidance_backend import LLGuidanceBackend
from octavo.decoding.structured.vocabulary import GrammarVocabulary
from octavo.errors import InvalidRequestError, RequestFailedError
from octavo.request.structured import StructuredKind, StructuredSpec
from tests.decoding.structured.walks import (
    BACKEND,
    END,
    MARK,
    TOKENS,
    VOCABULARY,
    WORDS,
    accepts,
    mask_of,
    matcher_of,
    schema_spec,
    walk,
)

SPECS = {
    "object": StructuredSpec(kind=StructuredKind.JSON_OBJECT),
    "schema": schema_spec(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 8},
                "tags": {"type": "array", "items": {"enum": ["a", "ab", "日本"]}, "maxItems": 3},
                "n": {"type": ["integer", "null"], "minimum": 0, "maximum": 120},
            },
            "required": ["name", "n"],
            "additionalProperties": False,
        }
    ),
    "number": schema_spec({"type": "number"}),
    "regex": StructuredSpec(kind=StructuredKind.REGEX, source=r"(ab|abc)+ \d{1,3}(é|日本)?"),
    "choice": StructuredSpec(kind=StructuredKind.CHOICE, choices=("a", "ab", "abc", 'say "é"\n\\', "\0\u2028", "")),
}
GRAMMARS = {name: BACKEND.compile(spec) for name, spec in SPECS.items()}


def matcher(name: str) -> Matcher:
    return GRAMMARS[name].matcher((END,))


def advance(m: Matcher, rng: np.random.Generator, num_tokens: int) -> int:
    """Accepts so many random allowed tokens, or as many as there are; returns how many."""
    for done in range(num_tokens):
        allowed = np.flatnonzero(mask_of(m))
        if m.is_terminated or not len(allowed):
            return done
        assert m.accept(int(rng.choice(allowed)))
    return num_tokens


@pytest.mark.parametrize("name", SPECS)
def test_what_the_mask_allows_is_what_is_accepted(name: str) -> None:
    rng = np.random.default_rng(3)
    m = matcher(name)
    for _ in range(12):
        allowed = mask_of(m)
        for token in range(len(TOKENS)):
            assert m.clone().accept(token) == allowed[token], (name, token, TOKENS[token])
        if not advance(m, rng, 1):
            break


@given(
    name=st.sampled_from(sorted(SPECS)), seed=st.integers(0, 10**6), first=st.integers(0, 15), more=st.integers(0, 15)
)
def test_tokens_taken_back_leave_no_trace(name: str, seed: int, first: int, more: int) -> None:
    rng = np.random.default_rng(seed)
    m = matcher(name)
    advance(m, rng, first)
    before = mask_of(m), m.can_end, m.is_terminated, m.num_tokens, m.is_complete
    m.rollback(advance(m, rng, more))
    assert np.array_equal(mask_of(m), before[0])
    assert (m.can_end, m.is_terminated, m.num_tokens, m.is_complete) == before[1:]


@given(name=st.sampled_from(sorted(SPECS)), seed=st.integers(0, 10**6), steps=st.lists(st.integers(-4, 6), max_size=8))
def test_any_way_back_and_forth_is_as_good_as_the_straight_one(name: str, seed: int, steps: list[int]) -> None:
    rng = np.random.default_rng(seed)
    m = matcher(name)
    tokens: list[int] = []
    for step in steps:
        if step < 0:
            back = min(-step, len(tokens))
            m.rollback(back)
            del tokens[len(tokens) - back :]
        for _ in range(step):
            allowed = np.flatnonzero(mask_of(m))
            if m.is_terminated:
                break
            tokens.append(int(rng.choice(allowed)))
            assert m.accept(tokens[-1])
    straight = matcher(name)
    assert all(straight.accept(token) for token in tokens)
    assert np.array_equal(mask_of(m), mask_of(straight))
    assert (m.can_end, m.is_complete, m.num_tokens) == (straight.can_end, straight.is_complete, straight.num_tokens)


@pytest.mark.parametrize("name", SPECS)
def test_clones_go_their_own_ways(name: str) -> None:
    rng = np.random.default_rng(5)
    m = matcher(name)
    advance(m, rng, 3)
    before = mask_of(m)
    copies = [m.clone() for _ in range(3)]
    for copy in copies:
        advance(copy, rng, 10)
    assert np.array_equal(mask_of(m), before)
    copies[0].rollback(min(3, copies[0].num_tokens))
    assert np.array_equal(mask_of(m), before)
    assert np.array_equal(mask_of(matcher(name)), mask_of(GRAMMARS[name].matcher((END,))))


def test_a_token_that_is_refused_changes_nothing() -> None:
    m = matcher("regex")
    assert m.accept(ord("a"))
    before = mask_of(m)
    for wrong in (ord("z"), END, MARK, -1, len(TOKENS), 10**9):
        assert not m.accept(wrong)
    assert np.array_equal(mask_of(m), before)
    assert m.num_tokens == 1


def test_an_end_token_comes_only_where_the_answer_is_whole() -> None:
    m = matcher("choice")
    assert mask_of(m)[END], "one choice is the empty text"
    for text, is_complete in (("a", False), ("b", False), ("c", True)):
        assert m.accept(ord(text))
        assert (m.can_end, m.is_complete) == (True, is_complete)
    assert np.flatnonzero(mask_of(m)).tolist() == [END]
    assert not m.is_terminated
    assert m.accept(END)
    assert m.is_terminated
    assert np.flatnonzero(mask_of(m)).tolist() == [END]
    m.rollback(2)
    assert not m.is_terminated
    assert set(np.flatnonzero(mask_of(m))) == {ord("c"), END}


def test_without_end_tokens_the_answer_is_complete_all_the_same() -> None:
    m = GRAMMARS["choice"].matcher(())
    assert all(m.accept(token) for token in b"abc")
    assert m.is_complete
    assert not mask_of(m).any()


def test_several_end_tokens() -> None:
    m = GRAMMARS["number"].matcher((END, MARK))
    assert m.accept(ord("1"))
    assert mask_of(m)[[END, MARK]].all()
    assert m.accept(MARK)
    assert m.accept(END), "drafts may hold more than one"
    m.rollback(1)
    assert m.is_terminated


def test_control_tokens_and_odd_bytes_are_no_text() -> None:
    spec = StructuredSpec(kind=StructuredKind.REGEX, source=r"[\x00-\u{10ffff}]+")
    allowed = mask_of(matcher_of(spec))
    assert not allowed[[END, MARK, TOKENS.index(b""), 0xFF, 0xC0, 0x80]].any()
    assert allowed[[0, 0x7F, TOKENS.index(b"abc"), 0xC3, TOKENS.index("日本".encode())]].all()


def test_tokens_of_equal_bytes_are_all_allowed() -> None:
    vocabulary = GrammarVocabulary((b"a", b"a", b"b", b"<e>"), frozenset({3}), lambda text: [0] * len(text))
    m = LLGuidanceBackend(vocabulary).compile(StructuredSpec(kind=StructuredKind.REGEX, source="a+")).matcher((3,))
    row = np.zeros(1, np.int32)
    m.fill_mask(row)
    assert row[0] == 0b0011
    assert m.accept(1)


def test_a_vocabulary_that_cannot_write_it() -> None:
    poor = LLGuidanceBackend(GrammarVocabulary((b"a", b"<e>"), frozenset({1}), lambda text: [0]))
    with pytest.raises(InvalidRequestError, match="no token of the vocabulary"):
        poor.compile(StructuredSpec(kind=StructuredKind.CHOICE, choices=("b",)))
    m = poor.compile(StructuredSpec(kind=StructuredKind.CHOICE, choices=("ab",))).matcher((1,))
    assert m.accept(0)
    with pytest.raises(RequestFailedError, match="no token of the vocabulary"):
        m.fill_mask(np.zeros(1, np.int32))


@pytest.mark.parametrize("size", [31, 32, 33, 63, 64, 65])
def test_rows_of_any_vocabulary_size(size: int) -> None:
    tokens = tuple(bytes([i]) for i in range(size))
    vocabulary = GrammarVocabulary(tokens, frozenset({size - 1}), lambda text: list(text.encode()))
    m = (
        LLGuidanceBackend(vocabulary)
        .compile(StructuredSpec(kind=StructuredKind.REGEX, source="[\\0-\\x7f]*"))
        .matcher((size - 1,))
    )
    row = np.zeros(mask_words(size), np.int32)
    m.fill_mask(row)
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    assert bits[:size].all()
    assert not bits[size:].any()


def test_more_than_was_accepted_cannot_be_taken_back() -> None:
    m = matcher("number")
    assert m.accept(ord("1"))
    with pytest.raises(ValueError, match="1 tokens"):
        m.rollback(2)


def test_forced_tokens_are_allowed_one_after_the_other() -> None:
    m = matcher("schema")
    assert m.accept(ord("{"))
    assert m.forced_tokens() == [], "a space may come"
    m = matcher_of(
        schema_spec({"type": "object", "required": ["name"], "properties": {"name": {"const": "abc"}}}, compact=True)
    )
    forced = m.forced_tokens()
    assert b"".join(TOKENS[i] for i in forced).startswith(b'{"name":"abc')
    for token in forced:
        assert mask_of(m)[token]
        assert m.accept(token)


def test_a_forced_text_is_cut_into_tokens_once() -> None:
    asked: list[str] = []

    def encode(text: str) -> list[int]:
        asked.append(text)
        return VOCABULARY.encode(text)

    backend = LLGuidanceBackend(replace(VOCABULARY, encode=encode))
    spec = schema_spec({"type": "object", "required": ["n"], "properties": {"n": {"const": "abc"}}}, compact=True)
    first = backend.compile(spec).matcher(())
    forced = first.forced_tokens()
    number = len(asked)
    assert forced
    assert number
    forced.append(0)
    assert [first.forced_tokens(), backend.compile(spec).matcher(()).forced_tokens()] == [forced[:-1]] * 2
    assert len(asked) == number


def test_forced_tokens_do_not_move_the_matcher() -> None:
    m, twin = matcher("regex"), matcher("regex")
    assert m.forced_tokens() == m.forced_tokens()
    assert m.accept(ord("a"))
    assert twin.accept(ord("a"))
    m.forced_tokens()
    m.rollback(1)
    twin.rollback(1)
    assert np.array_equal(mask_of(m), mask_of(twin))


def test_a_row_is_written_whole() -> None:
    row = np.full(WORDS, -1, np.int32)
    matcher("choice").fill_mask(row)
    again = np.zeros(WORDS, np.int32)
    matcher("choice").fill_mask(again)
    assert np.array_equal(row, again)


def test_every_random_answer_of_a_free_object_parses() -> None:
    whole = 0
    for seed in range(20):
        answer = walk(matcher("object"), np.random.default_rng(seed))
        if answer.is_whole:
            whole += 1
            assert isinstance(json.loads(answer.text), dict)
    assert whole > 10


@pytest.mark.parametrize(
    ("text", "good"),
    [("a", True), ("ab", True), ('say "é"\n\\', True), ("\0\u2028", True), ("b", False), ("abca", False)],
)
def test_choices(text: str, good: bool) -> None:
    assert accepts(matcher("choice"), text) == good


def test_the_library_is_loaded_when_it_is_needed() -> None:
    """And its encoder is asked for nothing but guesses."""
    code = (
        "import sys; import octavo.decoding.structured.llguidance_backend; import octavo.decoding.structured.backend; "
        "assert 'llguidance' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert VOCABULARY.special_id("<mark>") == MARK
    assert VOCABULARY.special_id("abc") is None


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "regex"},
        {"kind": "choice"},
        {"kind": "choice", "choices": ("a",), "source": "a"},
        {"kind": "json_object", "source": "{}"},
        {"kind": "calls", "source": "x"},
    ],
)
def test_specs_say_what_is_missing(fields: dict[str, object]) -> None:
    kind = StructuredKind(str(fields.pop("kind")))
    with pytest.raises(InvalidRequestError, match=r"needs|takes no"):
        StructuredSpec(kind=kind, field="response_format", **fields)  # type: ignore[arg-type]


def test_equal_specs_have_equal_keys_whoever_asked() -> None:
    one = StructuredSpec(kind=StructuredKind.REGEX, source="a", field="response_format")
    assert one.key() == StructuredSpec(kind=StructuredKind.REGEX, source="a").key()
    assert one.key() != StructuredSpec(kind=StructuredKind.REGEX, source="b").key()
    assert one.key() != StructuredSpec(kind=StructuredKind.GRAMMAR, source="a").key()
