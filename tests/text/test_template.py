"""What a chat template can see and do, beyond what the references cover."""

from datetime import datetime
from pathlib import Path

import pytest

from octavo.errors import InvalidRequestError, ModelFileError
from octavo.text.template import ChatTemplate
from octavo.text.template_source import template_from_gguf, template_from_hf

MESSAGES = [{"role": "user", "content": "Hi"}]


def test_tokens_variables_and_tools_are_seen() -> None:
    template = ChatTemplate("{{ bos_token }}|{{ eos_token }}|{{ tools is none }}|{{ thinking }}", bos_token="<s>")
    assert template.render(MESSAGES, variables={"thinking": False}) == "<s>||True|False"
    assert template.render(MESSAGES, variables={"eos_token": "</s>"}) == "<s>|</s>|True|"


@pytest.mark.parametrize("name", ["messages", "tools", "documents", "add_generation_prompt", "strftime_now"])
def test_a_variable_cannot_replace_what_the_template_is_given(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="chat_template_kwargs="):
        ChatTemplate("").render(MESSAGES, variables={name: 1})


def test_the_clock_is_an_argument() -> None:
    moment = datetime(2025, 3, 9)
    template = ChatTemplate("{{ strftime_now('%Y-%m-%d') }}", clock=lambda: moment)
    assert template.render(MESSAGES) == "2025-03-09"
    assert template.render(MESSAGES, now=datetime(2024, 1, 1)) == "2024-01-01"


def test_renderings_do_not_see_each_other() -> None:
    template = ChatTemplate("{% set x = (x or 0) + 1 %}{{ x }}")
    assert [template.render(MESSAGES) for _ in range(2)] == ["1", "1"]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for i in 'abc' %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% endfor %}", "1/3,2/3,3/3"),
        ("{% for i in nosuch %}x{% else %}none{% endfor %}", "none"),
        ("{% for k in {'a': 1, 'b': 2} %}{{ k }}{% endfor %}", "ab"),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}={{ v }}{% endfor %}", "a=1"),
        ("{% for m in messages recursive %}{{ m.role }}{{ loop(m.more or []) }}{% endfor %}", "user"),
        ("{{ 'a' in ['a', 'b'] and 'c' not in 'ab' and 1 < 2 <= 2 and [1] == [1] }}", "True"),
        ("{{ [3, 1, 2]|sort|join('-') }}{{ [1, 1]|unique|list }}{{ [2, 1]|max }}", "1-2-3[1]2"),
        ("{% for g in messages|groupby('role') %}{{ g.grouper }}{{ g.list|length }}{% endfor %}", "user1"),
        ("{{ {'b': 1, 'a': 2}|dictsort }}", "[('a', 2), ('b', 1)]"),
        ("{{ messages|map(attribute='content')|map('upper')|list }}", "['HI']"),
        ("{{ messages|selectattr('role', 'in', ['user'])|list|length }}", "1"),
        ("{{ '%s-%03d' % ('a', 7) }}{{ '{}:{x}'.format(1, x='y') }}{{ '%s'|format('z') }}", "a-0071:yz"),
        ("{{ 'abc'[1:] }}{{ messages[-1:][0].role }}{{ 'abc'[::-1] }}", "bcusercba"),
        ("{{ (1, 2)|list }}{{ {'a': [1, {'b': none}]}|tojson }}", '[1, 2]{"a": [1, {"b": null}]}'),
        ("{% set ns = namespace(a=1) %}{% set ns.b = ns.a + 1 %}{{ ns.b }}", "2"),
        ("{% set c = cycler('x', 'y') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}", "xyx"),
        ("{{ dict(a=1, **{'b': 2}) }}", "{'a': 1, 'b': 2}"),
        ("{{ 'a\nb'|indent(2, true) }}", "  a\n  b"),
        ("{% for i in 'ab' %}{% generation %}{{ i }}{% break %}{% endgeneration %}{% endfor %}", "a"),
    ],
)
def test_the_dialect(source: str, text: str) -> None:
    assert ChatTemplate(source).render(MESSAGES) == text


def test_gguf_keys() -> None:
    assert template_from_gguf({"tokenizer.chat_template": "x"}) == "x"
    assert template_from_gguf({}) is None
    with pytest.raises(ModelFileError, match=r"tokenizer\.chat_template is of type int"):
        template_from_gguf({"tokenizer.chat_template": 3})


def test_hf_files_in_their_order(tmp_path: Path) -> None:
    assert template_from_hf(tmp_path) is None
    (tmp_path / "chat_template.json").write_text('{"chat_template": "json"}')
    assert template_from_hf(tmp_path) == "json"
    named = '[{"name": "rag", "template": "no"}, {"name": "default", "template": "named"}]'
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": ' + named + "}")
    assert template_from_hf(tmp_path) == "named"
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "config"}')
    assert template_from_hf(tmp_path) == "config"
    (tmp_path / "chat_template.jinja").write_text("jinja")
    assert template_from_hf(tmp_path) == "jinja"


def test_damaged_hf_files(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ModelFileError, match=r"tokenizer_config\.json: not valid JSON"):
        template_from_hf(tmp_path)
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ModelFileError, match=r"chat_template\.jinja: not UTF-8"):
        template_from_hf(tmp_path)
