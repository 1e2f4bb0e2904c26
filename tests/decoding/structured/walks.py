"""A small vocabulary, and random answers under a matcher's masks."""

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from octavo.decoding.structured.backend import Matcher, mask_words
from octavo.decoding.structured.llguidance_backend import LLGuidanceBackend
from octavo.decoding.structured.vocabulary import GrammarVocabulary
from octavo.request.structured import StructuredKind, StructuredSpec

END, MARK = 256, 257
"""An end token, and a control token `<mark>`."""
_PIECES = (
    *('{"', '": ', '", "', '"}', '"}}', "}}", "]}", "], ", ", ", ": ", '": "', "\n  ", "  ", "[]", "{}", '""'),
    *(
        "true",
        "false",
        "null",
        "12",
        "0.",
        ".5",
        "e1",
        "-1",
        "20",
        "-0",
        "T1",
        "\\n",
        '\\"',
        "the",
        " cat",
        "a",
        "ab",
        "abc",
    ),
    *("é", "日本", "\U0001f600", "</", "name", "</tool_call>", "<tool_call>", "\n</parameter>\n"),
)
TOKENS = (*(bytes([i]) for i in range(256)), b"<end>", b"<mark>", *(piece.encode() for piece in _PIECES), b"", b"\xc3")
_CLOSING = np.array([t == b"\n</parameter>\n" or (bool(t) and set(t) <= set(b'"}])>/\n`')) for t in TOKENS])
_ODD = np.array([len(t) == 1 and not (0x20 <= t[0] < 0x7F) for t in TOKENS])


def encode(text: str) -> list[int]:
    """Longest tokens first."""
    data, ids = text.encode(), []
    while data:
        best = max((t for t in TOKENS if t and data.startswith(t)), key=len)
        ids.append(TOKENS.index(best))
        data = data[len(best) :]
    return ids


VOCABULARY = GrammarVocabulary(TOKENS, frozenset({END, MARK}), encode)
BACKEND = LLGuidanceBackend(VOCABULARY)
WORDS = mask_words(len(TOKENS))


def schema_spec(schema: Any, **settings: Any) -> StructuredSpec:
    return StructuredSpec(kind=StructuredKind.JSON_SCHEMA, source=json.dumps(schema), **settings)


def matcher_of(spec: StructuredSpec) -> Matcher:
    return BACKEND.compile(spec).matcher((END,))


def mask_of(matcher: Matcher) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """[tokens] which are allowed."""
    row = np.full(WORDS, 0x55555555, np.int32)
    matcher.fill_mask(row)
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    assert not bits[len(TOKENS) :].any(), "a bit behind the vocabulary"
    return bits[: len(TOKENS)].astype(np.bool_)


def accepts(matcher: Matcher, text: str) -> bool:
    """Whether the text, byte by byte, is a whole answer."""
    return all(matcher.accept(byte) for byte in text.encode()) and matcher.can_end


@dataclass(frozen=True)
class Walk:
    """One random answer."""

    token_ids: list[int]
    is_whole: bool
    """It ended with an end token, not by its length."""

    @property
    def text(self) -> str:
        data = b"".join(TOKENS[i] for i in self.token_ids if i != END)
        return data.decode("utf-8", "strict" if self.is_whole else "ignore")


def walk(matcher: Matcher, rng: np.random.Generator, max_tokens: int = 400) -> Walk:
    """Random logits under the masks, pulled towards an end the longer it takes. Checks each mask on the way: there is
    always a token; an end token exactly where the answer may end; what is drawn is accepted."""
    token_ids: list[int] = []
    while len(token_ids) < max_tokens:
        allowed = mask_of(matcher)
        assert allowed.any()
        assert allowed[END] == matcher.can_end
        pull = min(6, len(token_ids) / 8)
        logits = rng.standard_normal(len(TOKENS)) * 2 + pull * _CLOSING - 4 * _ODD
        logits[END] += 3 * pull
        token = int(np.argmax(np.where(allowed, logits, -np.inf)))
        assert matcher.accept(token)
        token_ids.append(token)
        if token == END:
            return Walk(token_ids, True)
    return Walk(token_ids, False)


def exact_json(text: str) -> Any:
    """JSON with decimal numbers, so that `multipleOf` means what it says."""
    return json.loads(text, parse_float=Decimal)
