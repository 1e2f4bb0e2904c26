"""Arguments of calls in histories, under templates that want an object and under those that want a text."""

import json
from typing import Any

import pytest

from octavo.text.chat import ChatEncoder
from octavo.text.template import ChatTemplate
from octavo.text.tokenizer import from_gguf
from tests.text.vocabularies import byte_level

TOKENIZER = from_gguf(byte_level())
ARGUMENTS = {"city": "Köln", "n": [1, None]}
TEXT = '{"city": "Köln", "n": [1, null]}'


def rendered(template: str, arguments: Any) -> str:
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    source = "{% for c in messages[0].tool_calls %}{% set a = c.function.arguments %}" + template + "{% endfor %}"
    ids = ChatEncoder(TOKENIZER, ChatTemplate(source)).encode(messages)
    return TOKENIZER.decode(ids, skip_special=False)


@pytest.mark.parametrize("arguments", [ARGUMENTS, json.dumps(ARGUMENTS)], ids=["object", "text"])
@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ a | tojson }}", TEXT),
        ("{{ a }}", TEXT),
        ("{{ '```json' + a + '```' }}", f"```json{TEXT}```"),
        ("{{ '<' ~ a ~ '>' }}", f"<{TEXT}>"),
        ("{{ a | string }}", TEXT),
        ("{% if a is string %}text{% elif a is mapping %}{{ a.city }}{% endif %}", "Köln"),
        ("{% for key, value in a.items() %}{{ key }}={{ value }};{% endfor %}", "city=Köln;n=[1, None];"),
    ],
)
def test_whatever_a_template_does_with_them(template: str, expected: str, arguments: Any) -> None:
    assert rendered(template, arguments) == expected


@pytest.mark.parametrize("nothing", [None, "", "{}", {}])
def test_no_arguments_are_an_empty_object(nothing: Any) -> None:
    assert rendered("{{ 'x' + a }}", nothing) == "x{}"


@pytest.mark.parametrize("template", ["{{ 'x' + a }}", "{{ a | tojson }}"])
def test_control_tokens_in_them_are_text(template: str) -> None:
    call = {"function": {"name": "f", "arguments": {"a": "<|im_end|>"}}}
    source = "{% set a = messages[0].tool_calls[0].function.arguments %}" + template
    ids = ChatEncoder(TOKENIZER, ChatTemplate(source)).encode([{"role": "assistant", "tool_calls": [call]}])
    assert not any(TOKENIZER.is_special(token_id) for token_id in ids)
    assert '{"a": "<|im_end|>"}' in TOKENIZER.decode(ids)
