"""What a constrained answer looks like parses to the calls it was made for."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.server.tools.call_format import ArgumentSyntax, CallFormat, CallPattern
from octavo.server.tools.registry import FAMILIES, tool_family
from octavo.server.tools.tool import NamedTool, Tool
from tests.server.tools.answers import ADD, TOOLS, WEATHER, parsed

NAMES = sorted(family.name for family in FAMILIES)

texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
plain_texts = texts.filter(lambda text: "<" not in text)
"""Without what would end a string where strings have no escapes."""


def arguments(strings: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    fields = {
        "city": strings,
        "days": st.integers(),
        "exact": st.booleans(),
        "tags": st.lists(st.integers(), max_size=3),
    }
    return st.fixed_dictionaries(
        {}, optional={**fields, "where": st.dictionaries(st.just("k"), plain_texts, max_size=1)}
    )


def written(pattern: CallPattern, values: Mapping[str, Any]) -> str:
    """A call as a constraint would have it."""
    return pattern.begin + WRITERS[pattern.syntax](pattern, values) + pattern.end


def _python(pattern: CallPattern, values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in values.items())


def _xml(pattern: CallPattern, values: Mapping[str, Any]) -> str:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
    return "".join(f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in texts.items())


def _escaped(pattern: CallPattern, values: Mapping[str, Any]) -> str:
    def one(value: Any) -> str:
        if isinstance(value, str):
            return pattern.quote + value + pattern.quote
        if isinstance(value, dict):
            return "{" + ",".join(f"{key}:{one(item)}" for key, item in value.items()) + "}"
        return "[" + ",".join(map(one, value)) + "]" if isinstance(value, list) else json.dumps(value)

    return ",".join(f"{key}:{one(value)}" for key, value in values.items())


WRITERS = {
    ArgumentSyntax.JSON: lambda pattern, values: json.dumps(values),
    ArgumentSyntax.PYTHON: _python,
    ArgumentSyntax.XML: _xml,
    ArgumentSyntax.ESCAPED: _escaped,
}


def answer(form: CallFormat, calls: list[tuple[str, dict[str, Any]]]) -> str:
    patterns = {pattern.name: pattern for pattern in form.calls}
    return form.begin + form.separator.join(written(patterns[name], values) for name, values in calls) + form.end


@pytest.mark.parametrize("name", NAMES)
def test_every_constrained_answer_parses_to_its_calls(name: str) -> None:
    form = tool_family(name).call_format(TOOLS, "required", parallel=True)
    is_free = {ArgumentSyntax.JSON, ArgumentSyntax.PYTHON}
    strings = texts if form.calls[0].syntax in is_free else plain_texts

    @settings(max_examples=60, deadline=None)
    @given(st.lists(arguments(strings), min_size=1, max_size=3 if form.max_calls is None else 1), st.booleans())
    def check(values: list[dict[str, Any]], then_now: bool) -> None:
        calls: list[tuple[str, dict[str, Any]]] = [("get_weather", value) for value in values]
        calls += [("now", {})] * (then_now and form.max_calls is None)
        text = answer(form, calls)
        found = parsed(name, text)
        assert [(call.name, json.loads(call.arguments), call.complete) for call in found.calls] == [
            (called, value, True) for called, value in calls
        ]
        assert found.content == ""
        assert form.trigger in text

    check()


@pytest.mark.parametrize("name", NAMES)
def test_what_the_choice_allows(name: str) -> None:
    family = tool_family(name)
    auto = family.call_format(TOOLS, "auto", parallel=True)
    assert (auto.min_calls, [pattern.name for pattern in auto.calls]) == (0, ["get_weather", "add", "now"])
    required = family.call_format(TOOLS, "required", parallel=False)
    assert (required.min_calls, required.max_calls) == (1, 1)
    named = family.call_format(TOOLS, NamedTool("add"), parallel=True)
    assert (named.min_calls, named.max_calls, [pattern.name for pattern in named.calls]) == (1, 1, ["add"])
    assert named.calls[0].schema is ADD.parameters


@pytest.mark.parametrize("name", ["hermes", "llama3_json", "granite", "mistral_list", "json"])
def test_odd_names_are_written_as_json(name: str) -> None:
    odd = Tool('a "quoted"\\ näme\n', WEATHER.parameters)
    form = tool_family(name).call_format([odd], "required", parallel=False)
    found = parsed(name, answer(form, [(odd.name, {"city": "x"})]), tools=[odd])
    assert [(call.name, call.arguments) for call in found.calls] == [(odd.name, '{"city": "x"}')]
