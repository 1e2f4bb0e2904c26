"""Counting the values of a body before it is read."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.server import body_weight
from octavo.server.body import MAX_HEAVY_VALUES, MIN_VALUES
from octavo.server.body_weight import weigh
from tests.server.conftest import FakeServer

TEXTS = st.text(alphabet=st.sampled_from('ab\\",[]{}:é😀\n'), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def counted(value: Any) -> tuple[int, int, int]:
    """Containers, strings, commas of a value as `json.dumps` writes it."""
    if isinstance(value, str):
        return 0, 1, 0
    if not isinstance(value, list | dict):
        return 0, 0, 0
    inner = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    parts = [counted(one) for one in inner]
    containers, strings, commas = (sum(column) for column in zip((0, 0, 0), *parts, strict=True))
    return containers + 1, strings, commas + max(0, len(value) - 1)


@given(VALUES, st.integers(1, 9), st.booleans())
def test_all_values_are_counted_wherever_the_pieces_are_cut(value: Any, size: int, only_ascii: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_weight, "_PIECE_BYTES", size)
        weight = weigh(json.dumps(value, ensure_ascii=only_ascii).encode())
    assert (weight.num_containers, weight.num_strings, weight.num_commas) == counted(value)


@pytest.mark.parametrize("body", [b"", b"\\", b'"', b'"\\', b"\xff" * 9, b'"\\"' * 5])
def test_what_is_no_json_is_no_obstacle(body: bytes) -> None:
    weigh(body)


@pytest.mark.parametrize(
    ("path", "body", "what"),
    [
        ("/v1/completions", {"prompt": "x", "metadata": {"a": [[]] * 400_000}}, "objects, lists and texts"),
        ("/v1/completions", {"prompt": [1] * 400_000}, "values"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}] * 20_000}, "objects, lists and texts"),
    ],
)
def test_a_body_of_too_many_values_is_refused_unread(
    server: FakeServer, path: str, body: dict[str, Any], what: str
) -> None:
    answer = httpx.post(server.url + path, json=body, timeout=30)
    error = answer.json()["error"]
    assert answer.status_code == 413 and error["code"] == "request_too_large"
    assert what in error["message"]


@pytest.mark.parametrize("spare", [0, 1])
@pytest.mark.parametrize("kind", ["heavy", "any"])
def test_how_many_values_just_fit(server: FakeServer, kind: str, spare: int) -> None:
    """Both bodies are refused for what they hold; one too many, and nobody looks at that any more."""
    if kind == "heavy":  # the body, two keys, a text, an object, a key, a list
        body: dict[str, Any] = {"prompt": "x", "metadata": {"a": [[]] * (MAX_HEAVY_VALUES - 7 + spare)}}
    else:  # the body and the list are values, too
        body = {"prompt": [1] * (MIN_VALUES - 1 + spare)}
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=30)
    assert answer.status_code == (413 if spare else 400), answer.text


def test_a_long_text_is_no_weight(server: FakeServer) -> None:
    body = {"prompt": 'a "quoted", [bracketed] text ' * 2_500, "truncate_prompt_tokens": 5, "max_tokens": 1}
    assert httpx.post(f"{server.url}/v1/completions", json=body, timeout=30).status_code == 200


def test_a_text_that_cannot_fit_is_refused_before_it_is_encoded(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(*_: object, **__: object) -> list[int]:
        raise AssertionError("it was encoded")

    monkeypatch.setattr(server.engine.tokenizer, "encode", encode)
    answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": "word " * 100_000}, timeout=30)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "the prompt has at least" in error["message"]
