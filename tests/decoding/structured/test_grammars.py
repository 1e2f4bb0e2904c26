"""Grammars in GBNF: what they mean, what is wrong with them; and regular expressions against Python's."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import InvalidRequestError, RequestFailedError
from octavo.request.structured import StructuredKind, StructuredSpec
from tests.decoding.structured.walks import BACKEND, END, accepts, mask_of, matcher_of, walk


def gbnf(source: str) -> StructuredSpec:
    return StructuredSpec(kind=StructuredKind.GRAMMAR, source=source, field="structured_outputs.grammar")


SQL = """
# as in vLLM's documentation
root ::= select_statement
select_statement ::= "SELECT " column " from " table " where " condition
column ::= "col_1 " | "col_2 "
table ::= "table_1 " | "table_2 "
condition ::= column "= " number
number ::= "1 " | "2 "
"""
ARITHMETIC = 'root ::= root [-+] term | term\nterm ::= [0-9]+ | "(" root ")"'

CASES: list[tuple[str, list[str], list[str]]] = [
    (
        SQL,
        ["SELECT col_1  from table_2  where col_2 = 1 "],
        ["SELECT col_1 ", "SELECT col_3  from table_1  where col_1 = 1 "],
    ),
    (ARITHMETIC, ["1", "1+2-(3+44)", "((7))"], ["", "1+", "(1", "1 + 2", "a"]),
    ('root ::= ("a" | "ab") "b"', ["ab", "abb"], ["a", "b", "abbb"]),
    ('root ::= "a" root "b" |', ["", "ab", "aaabbb"], ["a", "aab", "ba"]),
    ('root ::= [^"\\\\\\n]* "\\""', ['abc"', '"', 'é日"'], ['a"b"', "abc", '\n"']),
    ('root ::= "\\x41\\u00e9\\U0001F600\\t\\\\"', ["Aé\U0001f600\t\\"], ["Aé"]),
    (
        'root ::= x{2,3} y{2} z{1,}\nx ::= "x"\ny ::= "y"\nz ::= "z"',
        ["xxyyz", "xxxyyzzz"],
        ["xyyz", "xxxxyyz", "xxyz", "xxyy"],
    ),
    ('root ::= . .? "!"', ["a!", "\n!", "é日!", "!!"], ["!", "abc!"]),
    ("root ::= ( [a-c]\n  | [x-z] )+ # comment ::= not a rule\n", ["abz"], ["d", ""]),
    ('root ::= a-B_1 | "no"\na-B_1 ::= "yes"', ["yes", "no"], ["maybe"]),
    ('root ::= ((("a"?)*)+)?', ["", "aaa"], ["b"]),
    ('root ::= bad | "ok" bad*\nbad ::= "x" bad', ["ok"], ["x", "okx"]),
    ('root ::= "" ("a" "" | "")', ["", "a"], ["aa"]),
]


@pytest.mark.parametrize(("source", "good", "bad"), CASES)
def test_what_a_grammar_means(source: str, good: list[str], bad: list[str]) -> None:
    grammar = BACKEND.compile(gbnf(source))
    for text in good:
        assert accepts(grammar.matcher((END,)), text), text
    for text in bad:
        assert not accepts(grammar.matcher((END,)), text), text
    for seed in range(3):
        answer = walk(grammar.matcher((END,)), np.random.default_rng(seed))
        assert not answer.is_whole or accepts(grammar.matcher((END,)), answer.text)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('start: "a"', "line 1: cannot be read from"),
        ("hello", "a rule was expected; grammars are GBNF"),
        ('item ::= "a"', "there is no rule 'root'"),
        ('root ::= "a"\nroot ::= "b"', "line 2: the rule 'root' is defined twice"),
        ('root ::= "a"\n  thing', "line 2: there is no rule 'thing'"),
        ('root ::= ("a"', "a closing parenthesis was expected"),
        ('root ::= "a")', "a rule was expected"),
        ('root ::= "a', "cannot be read from"),
        ('root ::= "\\q"', "is no escape of a character"),
        ('root ::= "\\ud800"', "is no escape of a character"),
        ("root ::= [z-a]", "a range that ends before it begins"),
        ("root ::= []", "an empty class"),
        ('root ::= "a"{3,2}', "a repetition from 3 to 2"),
        ('root ::= "a"{0,10001}', "at most 10000 repetitions"),
        ("root ::= " + "(" * 65 + '"a"' + ")" * 65, "groups nest deeper than 64"),
        ('root ::= "a" root', "the rule 'root' has no finite text"),
        ("root ::= a\na ::= b\nb ::= a", "the rule 'root' has no finite text"),
        ("\n".join(f'r{i} ::= "a"' for i in range(2001)), "more than 2000 rules"),
        ("root ::= " + '"a"' * 400_000, "more than 1048576 characters"),
        (" ", "there is no rule 'root'"),
    ],
)
def test_what_is_no_grammar(source: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(message)) as error:
        BACKEND.compile(gbnf(source))
    assert error.value.field == "structured_outputs.grammar"


@pytest.mark.parametrize(
    "source",
    [
        "root ::= " + "(" * 20 + '"a"{0,1000}' + "){0,1000}" * 20,
        "root ::= " + " | ".join(f'"a"{{0,{i}}} "b" [a-c]*' for i in range(1, 400)),
    ],
)
def test_a_grammar_that_can_be_read_in_too_many_ways_ends_its_answer(source: str) -> None:
    m = matcher_of(gbnf(source))
    with pytest.raises(RequestFailedError, match="cannot go on in the shape asked for: there are too many ways"):
        for _ in range(1000):
            assert m.accept(ord("a"))
            mask_of(m)


ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "é",
        "[a-c]",
        "[^ab]",
        ".",
        r"\d",
        r"\w",
        r"\s",
        r"\S",
        r"\D",
        r"\.",
        r"\x41",
        "(ab|c)",
        "(?:a|)",
        r"[\d\-x]",
    ]
)
REPEATS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,3}", "*?", "{0,2}?"])
EXPRESSIONS = st.lists(
    st.lists(st.tuples(ATOMS, REPEATS).map("".join), min_size=1, max_size=4).map("".join), min_size=1, max_size=3
).map("|".join)


@given(source=EXPRESSIONS, seed=st.integers(0, 10**6))
def test_what_is_generated_matches_in_python(source: str, seed: int) -> None:
    m = matcher_of(StructuredSpec(kind=StructuredKind.REGEX, source=source))
    answer = walk(m, np.random.default_rng(seed), 60)
    if answer.is_whole:
        assert re.fullmatch(source, answer.text), (source, answer.text)


@given(source=EXPRESSIONS, texts=st.lists(st.text(alphabet="abcxAé1 .-", max_size=6), max_size=6))
def test_ascii_texts_match_as_in_python(source: str, texts: list[str]) -> None:
    """Where the dialects agree the language is the same, not only a part of it."""
    grammar = BACKEND.compile(StructuredSpec(kind=StructuredKind.REGEX, source=source))
    for text in filter(str.isascii, texts):
        assert accepts(grammar.matcher((END,)), text) == bool(re.fullmatch(source, text)), (source, text)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("(?=a)", "character 1: look-around"),
        ("(?i)a", "character 1: look-around, flags"),
        (r"(a)\1", "back-references are not supported"),
        (r"\bx", r"\b: not supported"),
        ("a**", "a repetition of a repetition"),
        ("a*+", "a repetition of a repetition"),
        ("*a", "a repetition with nothing to repeat"),
        ("a{2", "a repetition is {m}"),
        ("a{3,2}", "a repetition from 3 to 2"),
        ("x}", "write \\} for the character itself"),
        ("[a", "a class without a closing bracket"),
        ("[b-a]", "a range that ends before it begins"),
        ("[[:alpha:]]", "POSIX classes"),
        ("(a", "an opening parenthesis without a closing one"),
        ("a)", "a closing parenthesis without an opening one"),
        ("a^b", "an anchor in the middle"),
        ("a$b", "an anchor in the middle"),
        ("(^a)", "an anchor inside a group"),
        (r"\ud800", "not the number of a character"),
        (r"\u12", "not the number of a character"),
        (r"\p{L", "a Unicode property is written"),
        ("(?<1>a)", "a group name must be an identifier"),
        ("(" * 65 + "a" + ")" * 65, "groups nest deeper than 64"),
        ("(a{1,1000}){1,1000}", "more than 100000 characters"),
        ("a{99999999}", "a repetition is {m}"),
        ("x" * 1_100_000, "1100000 characters; at most 1048576"),
        ("[a-\\d]", "a range that ends before it begins, or with a class"),
    ],
)
def test_what_is_no_expression_of_the_dialect(source: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(message)):
        matcher_of(StructuredSpec(kind=StructuredKind.REGEX, source=source))


@pytest.mark.parametrize("choices", [tuple(map(str, range(20_001))), ("x" * 1_100_000,)])
def test_choices_are_bounded(choices: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidRequestError, match="at most"):
        matcher_of(StructuredSpec(kind=StructuredKind.CHOICE, choices=choices))
