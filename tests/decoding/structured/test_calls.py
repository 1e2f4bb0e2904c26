"""Tool calls: whatever the grammar of a family accepts, its parser reads as calls of the tools, and as nothing else."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest

from octavo.errors import InvalidRequestError
from octavo.request.structured import ArgumentSyntax, CallShape, CallsShape, StructuredKind, StructuredSpec
from octavo.server.tools.constraint import calls_shape
from octavo.server.tools.events import ContentDelta, ToolCallArgumentsDelta, ToolCallEnd, ToolCallStart
from octavo.server.tools.family import ToolFamily, tool_parser
from octavo.server.tools.registry import FAMILIES
from octavo.server.tools.tool import NamedTool, Tool, ToolChoice
from tests.decoding.structured.walks import BACKEND, END, MARK, accepts, mask_of, matcher_of, walk

WEATHER = Tool(
    "get_weather",
    {
        "type": "object",
        "description": 'odd: "\n</tool_call> {[(',
        "properties": {
            "city": {"type": "string"},
            "unit": {"type": "string", "enum": ["C", "F", "a\nb"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
)
GET = Tool("get", {"type": "object", "properties": {"k": {"type": "boolean"}, "n": {"type": ["number", "null"]}}})
FLAG = Tool("flag", {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]})
NESTED = Tool(
    "nested",
    {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node"}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["tree"],
        "$defs": {"node": {"type": "object", "properties": {"v": {"type": "number"}, "kids": {"type": "array"}}}},
    },
)
OTHER = Tool("other", {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "required": ["w"]}}})
NOTHING = Tool("nothing")

TOOLS: dict[ArgumentSyntax, list[Tool]] = {
    ArgumentSyntax.JSON: [WEATHER, GET, NESTED, OTHER, NOTHING],
    ArgumentSyntax.PYTHON: [WEATHER, GET, NESTED, NOTHING],
    ArgumentSyntax.XML: [WEATHER, FLAG, NOTHING],
}
"""What each syntax can hold."""
NAMES = [family.name for family in FAMILIES]


def family_of(name: str) -> ToolFamily:
    return next(family for family in FAMILIES if family.name == name)


def syntax_of(family: ToolFamily) -> ArgumentSyntax:
    return ArgumentSyntax(family.call_format([NOTHING], "required", parallel=True).calls[0].syntax.value)


def spec_of(family: ToolFamily, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> StructuredSpec:
    return StructuredSpec(
        kind=StructuredKind.CALLS,
        calls=calls_shape(family.call_format(tools, choice, parallel=parallel)),
        field="tools",
    )


def parsed(family: ToolFamily, tools: Sequence[Tool], text: str) -> tuple[list[tuple[str, Any]], str]:
    """The calls, all of them complete, and the content."""
    parser = tool_parser(family, tools)
    events = [*parser.feed(text), *parser.finish()]
    names = {event.index: event.name for event in events if isinstance(event, ToolCallStart)}
    arguments = dict.fromkeys(names, "")
    for event in events:
        if isinstance(event, ToolCallArgumentsDelta):
            arguments[event.index] += event.text
        assert not isinstance(event, ToolCallEnd) or event.complete, text
    content = "".join(event.text for event in events if isinstance(event, ContentDelta))
    return [(names[index], json.loads(arguments[index])) for index in sorted(names)], content


def check_arguments(tools: Sequence[Tool], calls: Sequence[tuple[str, Any]]) -> None:
    schemas = {tool.name: tool.parameters or {"type": "object"} for tool in tools}
    for name, arguments in calls:
        jsonschema.validate(arguments, schemas[name], jsonschema.Draft202012Validator)


def random_calls(name: str, choice: ToolChoice, *, parallel: bool, seeds: range) -> list[list[tuple[str, Any]]]:
    """The calls of each random answer that came to an end."""
    family = family_of(name)
    tools = TOOLS[syntax_of(family)]
    grammar = BACKEND.compile(spec_of(family, tools, choice, parallel=parallel))
    found = []
    for seed in seeds:
        answer = walk(grammar.matcher((END,)), np.random.default_rng(seed), 600)
        if answer.is_whole:
            calls, content = parsed(family, tools, answer.text)
            assert not content.strip(), answer.text
            assert calls, answer.text
            check_arguments(tools, calls)
            found.append(calls)
    return found


CONSTRAINED = [name for name in NAMES if syntax_of(family_of(name)) in TOOLS]


@pytest.mark.parametrize("name", CONSTRAINED)
def test_required_calls(name: str) -> None:
    answers = random_calls(name, "required", parallel=True, seeds=range(12))
    assert len(answers) >= 6
    assert len({name for calls in answers for name, _ in calls}) > 1


@pytest.mark.parametrize("name", CONSTRAINED)
def test_one_call_where_parallel_calls_are_off(name: str) -> None:
    assert {len(calls) for calls in random_calls(name, "required", parallel=False, seeds=range(6))} == {1}


@pytest.mark.parametrize("name", CONSTRAINED)
def test_a_named_call(name: str) -> None:
    answers = random_calls(name, NamedTool("get_weather"), parallel=True, seeds=range(6))
    assert answers
    assert all([name for name, _ in calls] == ["get_weather"] for calls in answers)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONSTRAINED)
def test_many_required_calls(name: str) -> None:
    assert len(random_calls(name, "required", parallel=True, seeds=range(100, 200))) >= 50


@pytest.mark.parametrize("name", [name for name in NAMES if name not in CONSTRAINED])
def test_syntaxes_that_are_not_constrained_say_so(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be constrained"):
        BACKEND.compile(spec_of(family_of(name), [WEATHER], "required", parallel=True))


def test_several_calls_and_their_separators() -> None:
    family = family_of("hermes")
    spec = spec_of(family, [GET, FLAG], "required", parallel=True)
    first = '<tool_call>\n{"name": "get", "arguments": {}}\n</tool_call>'
    second = '<tool_call>\n{"name": "flag", "arguments": {"on": true}}\n</tool_call>'
    grammar = BACKEND.compile(spec)
    assert accepts(grammar.matcher((END,)), f"{first}\n{second}\n{first}")
    for wrong in (
        "",
        "Sure! ",
        first + second,
        f"{first}\n",
        first.replace("get", "got"),
        second.replace("true", '"x"'),
    ):
        assert not accepts(grammar.matcher((END,)), wrong), wrong


def test_free_answers_hold_whole_calls() -> None:
    family = family_of("hermes")
    grammar = BACKEND.compile(spec_of(family, [FLAG, GET], "auto", parallel=True))
    call = '<tool_call>\n{"name": "flag", "arguments": {"on": false}}\n</tool_call>'
    for good in ("", "Hello < world", f"Well:\n{call}", f"{call}\n{call}", f"{call} and more <tool"):
        assert accepts(grammar.matcher((END,)), good), good
    for wrong in ("<tool_call>", "<tool_call>\nno", f"x {call[:-5]}", call.replace("flag", "flog")):
        assert not accepts(grammar.matcher((END,)), wrong), wrong
    calls, content = parsed(family, [FLAG, GET], f"Well:\n{call}\n{call}")
    assert (len(calls), content.strip()) == (2, "Well:")


def test_at_most_one_call_in_a_free_answer() -> None:
    grammar = BACKEND.compile(spec_of(family_of("hermes"), [FLAG], "auto", parallel=False))
    call = '<tool_call>\n{"name": "flag", "arguments": {"on": false}}\n</tool_call>'
    assert accepts(grammar.matcher((END,)), f"a {call} b")
    assert not accepts(grammar.matcher((END,)), f"a {call} {call}")


def shape(**changes: Any) -> StructuredSpec:
    call = CallShape(begin='<mark>{"a": ', end="}<mark>", schema='{"type": "object", "maxProperties": 0}')
    return StructuredSpec(kind=StructuredKind.CALLS, calls=CallsShape(**{"calls": (call,), **changes}))


def test_markers_that_are_control_tokens_are_those_tokens() -> None:
    m = BACKEND.compile(shape(max_calls=1)).matcher((END,))
    assert np.flatnonzero(mask_of(m)).tolist() == [MARK]
    assert m.accept(MARK)
    assert all(m.accept(byte) for byte in b'{"a": {}}')
    assert not m.can_end
    assert m.accept(MARK)
    assert m.is_complete


def test_a_control_token_as_trigger() -> None:
    m = BACKEND.compile(shape(trigger="<mark>", min_calls=0, max_calls=1)).matcher((END,))
    assert all(m.accept(byte) for byte in b"text <mark> is text")
    assert m.can_end
    assert m.accept(MARK)
    assert not m.can_end
    assert not m.accept(ord("x"))
    assert all(m.accept(byte) for byte in b'{"a": {}}')
    assert m.accept(MARK)
    assert m.can_end
    assert not m.accept(MARK), "only one call"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_calls": 0}, "can only be required"),
        ({"min_calls": 0, "trigger": "<mark>{"}, "may be something else than a call"),
        ({"min_calls": 0, "trigger": "text"}, "not with the trigger 'text'"),
        ({"min_calls": 3, "max_calls": 2}, "from 3 to 2 calls"),
        ({"max_calls": 1000}, "at most 128"),
        ({"calls": ()}, "0 kinds of call"),
        ({"calls": (CallShape(begin="f", end="", schema='{"not": {}}'),)}, "at 'f' $: the keyword 'not'"),
        ({"calls": (CallShape(begin="f", end="", schema='{"type": "array"}'),)}, "must be one of objects"),
    ],
)
def test_what_cannot_be_had(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError) as error:
        BACKEND.compile(shape(**changes))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("syntax", "schema", "message"),
    [
        ("python", {"properties": {"a b": True}}, "cannot be written in this format: 'a b'"),
        ("python", {"anyOf": [{"type": "object"}]}, "'anyOf': calls in this format need arguments that are declared"),
        ("python", {"required": ["a"], "properties": {"a": False}, "type": "object"}, "no value can satisfy"),
        ("xml", {"properties": {"a": {"type": "array"}}}, "a string (free, or of an enum), a number"),
        ("xml", {"properties": {"a": {"type": "string", "maxLength": 3}}}, "a string (free, or of an enum)"),
        ("xml", {"properties": {"a": {"type": "string", "enum": ["</parameter>"]}}}, "none of the values"),
        ("xml", {"properties": {"a<": {"type": "string"}}}, "cannot be written in this format"),
    ],
)
def test_arguments_that_a_format_cannot_hold(syntax: str, schema: dict[str, Any], message: str) -> None:
    call = CallShape(begin="f(", end=")", schema=json.dumps(schema), syntax=ArgumentSyntax(syntax))
    with pytest.raises(InvalidRequestError) as error:
        BACKEND.compile(shape(calls=(call,)))
    assert message in str(error.value)


def test_arguments_in_a_list_with_any_of_them_left_out() -> None:
    schema = {"properties": {name: {"type": "integer"} for name in "abcd"}, "required": ["c"], "type": "object"}
    call = CallShape(begin="f(", end=")", schema=json.dumps(schema), syntax=ArgumentSyntax.PYTHON)
    grammar = BACKEND.compile(shape(calls=(call,)))
    for good in ("c=1", "a=1, c=1", "b=1, c=1, d=1", "a=1, b=2, c=3, d=4"):
        assert accepts(grammar.matcher((END,)), f"f({good})"), good
    for wrong in ("", "a=1", "c=1, a=1", "a=1 c=1", ", c=1", "c=1,", "a=1, d=1", "c=1, c=1", 'c="1"'):
        assert not accepts(grammar.matcher((END,)), f"f({wrong})"), wrong


def test_what_the_schema_allows_beside_the_declared_arguments_is_not_written() -> None:
    named = replace(GET, parameters={**GET.parameters, "additionalProperties": True})
    grammar = BACKEND.compile(spec_of(family_of("pythonic"), [named], "required", parallel=True))
    assert accepts(grammar.matcher((END,)), "[get(k=true)]")
    assert not accepts(grammar.matcher((END,)), "[get(z=true)]")


@pytest.mark.parametrize("name", ["hermes", "mistral", "deepseek_v31", "qwen3_coder"])
def test_calls_or_json_of_a_schema(name: str) -> None:
    wanted = family_of(name).call_format([FLAG], "auto", parallel=True)
    shape = msgspec.structs.replace(calls_shape(wanted), content='{"type": "object", "required": ["a"]}')
    spec = StructuredSpec(kind=StructuredKind.CALLS, calls=shape)
    call = wanted.calls[0]
    on = {"json": '{"on": true}', "xml": "<parameter=on>\ntrue\n</parameter>\n"}[call.syntax.value]
    made = f"{call.begin}{on}{call.end}"
    first = f"{wanted.begin}{made}"
    for good in (f"{first}{wanted.end}", f"{first}{wanted.separator}{made}{wanted.end}", '{"a": [1]}'):
        assert accepts(matcher_of(spec), good), good
    for wrong in ('{"b": 1}', "text", '{"a": 1}' + made, f"{first}{wanted.end}" + '{"a": 1}', ""):
        assert not accepts(matcher_of(spec), wrong), wrong


def test_calls_that_no_marker_tells_from_json_can_only_be_required() -> None:
    shape = calls_shape(family_of("llama3_json").call_format([FLAG], "auto", parallel=True))
    spec = StructuredSpec(kind=StructuredKind.CALLS, calls=msgspec.structs.replace(shape, content="{}"))
    with pytest.raises(InvalidRequestError, match="can only be required"):
        BACKEND.compile(spec)
