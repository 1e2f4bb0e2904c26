"""Templates get contents in the form that they are written for."""

from typing import Any

import pytest

from octavo.text.chat import ChatEncoder
from octavo.text.content_form import ContentForm, content_form
from octavo.text.template import ChatTemplate
from octavo.text.tokenizer import from_gguf
from tests.text import golden
from tests.text.vocabularies import byte_level

TEXT = "{% for m in messages %}[{{ m.role }}]{{ m['content'] | trim }}{% endfor %}"
PARTS = (
    "{% for m in messages %}[{{ m.role }}]{% for part in m['content'] | selectattr('type', 'equalto', 'text') %}"
    "<{{ part.text }}>{% endfor %}{% endfor %}"
)
EITHER = (
    "{% macro body(content) %}{% if content is string %}{{ content }}{% else %}"
    "{% for part in content %}<{{ part.text }}>{% endfor %}{% endif %}{% endmacro %}"
    "{% for m in messages %}[{{ m.role }}]{{ body(m.content) }}{% endfor %}"
)
TWO_PARTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


@pytest.mark.parametrize(
    ("source", "form"),
    [
        (TEXT, ContentForm.TEXT),
        (PARTS, ContentForm.PARTS),
        (EITHER, ContentForm.EITHER),
        ("{% for c in messages[0].content.split() %}{{ c }}{% endfor %}", ContentForm.TEXT),
    ],
)
def test_what_a_template_wants(source: str, form: ContentForm) -> None:
    assert content_form(source) is form


@pytest.mark.parametrize("model", ["qwen2", "smollm2"])
def test_what_the_template_of_a_real_model_wants(model: str) -> None:
    assert content_form(golden.metadata(model)["tokenizer.chat_template"]) is ContentForm.TEXT


@pytest.mark.parametrize(
    ("source", "content", "rendered"),
    [
        (TEXT, TWO_PARTS, "[user]a\nb"),
        (TEXT, None, "[user]"),
        (PARTS, TWO_PARTS, "[user]<a><b>"),
        (PARTS, "a", "[user]<a>"),
        (PARTS, None, "[user]"),
        (EITHER, TWO_PARTS, "[user]<a><b>"),
        (EITHER, "a", "[user]a"),
        (EITHER, None, "[user]"),
    ],
)
def test_contents_as_the_template_wants_them(source: str, content: Any, rendered: str) -> None:
    tokenizer = from_gguf(byte_level())
    ids = ChatEncoder(tokenizer, ChatTemplate(source)).encode([{"role": "user", "content": content}])
    assert tokenizer.decode(ids, skip_special=False) == rendered
