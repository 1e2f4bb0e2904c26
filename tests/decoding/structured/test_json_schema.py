"""JSON Schema: every keyword is enforced (a text that violates it is refused) or refused by name."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from octavo.decoding.structured.json_schema.formats import FORMATS
from octavo.decoding.structured.json_schema.keywords import ANNOTATIONS, REFUSED
from octavo.decoding.structured.json_schema.rewrite import ENFORCED
from octavo.errors import InvalidRequestError
from tests.decoding.structured.keyword_cases import A_ONLY, CASES, INTEGER, OBJECT
from tests.decoding.structured.walks import BACKEND, accepts, mask_of, matcher_of, schema_spec


@pytest.mark.parametrize("keyword", ENFORCED)
def test_every_enforced_keyword(keyword: str) -> None:
    for schema, good, bad in CASES[keyword]:
        spec = schema_spec(schema)
        for text in good:
            assert accepts(matcher_of(spec), text), f"{schema} should allow {text}"
        for text in bad:
            assert not accepts(matcher_of(spec), text), f"{schema} should not allow {text}"


@pytest.mark.parametrize("keyword", REFUSED)
def test_every_refused_keyword_is_named_with_its_place(keyword: str) -> None:
    schema = {"type": "object", "properties": {"a b": {"items": {keyword: {}}}}}
    with pytest.raises(InvalidRequestError) as error:
        matcher_of(schema_spec(schema, field="response_format"))
    assert error.value.field == "response_format"
    assert f"at $.properties['a b'].items: the keyword {keyword!r} is not supported: " in str(error.value)


def test_annotations_change_nothing() -> None:
    """Among them descriptions full of what could be mistaken for a grammar."""
    odd = '"\\\n</tool_call> é {[( %json start: "'
    for keyword in (*ANNOTATIONS, "x-anything", "x-guidance"):
        spec = schema_spec({"type": "object", keyword: odd, "properties": {"a": {**INTEGER, keyword: odd}}})
        assert accepts(matcher_of(spec), '{"a": 1}')
        assert not accepts(matcher_of(spec), '{"a": "x"}')


# What is wrong -> a part of the message, which names the place.
WRONG: list[tuple[Any, str]] = [
    ({"properties": {"a": {"foo": 1}}}, "at $.properties.a: 'foo' is no keyword"),
    ({"type": "text"}, "at $.type: 'text': the types are"),
    ({"type": []}, "at $.type"),
    ({"type": ["null", "null"]}, "at $.type: holds a text twice"),
    ({"enum": []}, "at $.enum: must be a list that is not empty"),
    ({"enum": ["a\x01"]}, "at $.enum[0]: the character U+0001"),
    ({"enum": ["\ud800"]}, "at $.enum[0]: the character U+D800"),
    ({"const": 2**53}, "at $.const"),
    ({"const": {"a": [1e300]}}, "at $.const"),
    ({"minimum": -(10**20), "maximum": -(10**19), "type": "integer"}, "at $.minimum"),
    ({"maximum": "5"}, "at $.maximum: '5' must be a number"),
    ({"exclusiveMinimum": True}, "at $.exclusiveMinimum: True must be a number"),
    ({"multipleOf": 0}, "at $.multipleOf: 0 must be positive"),
    ({"multipleOf": 9999991}, "at $.multipleOf: 9999991 must be positive and at most"),
    ({"allOf": [{"multipleOf": 9973}, {"multipleOf": 9967}]}, "the least common multiple of all multipleOf"),
    ({"minLength": -1}, "at $.minLength: -1 must be an integer from 0"),
    ({"maxItems": 1.5}, "at $.maxItems: 1.5 must be an integer"),
    ({"maxLength": 10**9}, "at $.maxLength"),
    ({"maxLength": float("inf")}, "no JSON"),
    ({"pattern": "(?=a)"}, "at $.pattern: regular expression, character 1: look-around"),
    ({"pattern": r"(a)\1"}, "back-references are not supported"),
    ({"pattern": r"\x01"}, "U+0001 is not written in JSON"),
    ({"pattern": 3}, "at $.pattern: must be a regular expression"),
    ({"format": "int32"}, "at $.format: 'int32': the formats enforced are date, "),
    ({"properties": []}, "at $.properties: must be an object"),
    ({"required": "a"}, "at $.required: must be a list of texts"),
    ({"minProperties": 2}, "at $.minProperties: 2: more than 1 is supported only where"),
    ({"maxProperties": 2, "properties": {"a": True}}, "at $.maxProperties: 2: more than 1"),
    ({"items": [{}]}, "at $.items: a list of schemas, as before draft 2020-12; use prefixItems"),
    ({"uniqueItems": True}, "at $.uniqueItems: the keyword 'uniqueItems' is not supported"),
    ({"anyOf": []}, "at $.anyOf: must be a list that is not empty"),
    ({"anyOf": [3]}, "at $.anyOf[0]: a schema is an object"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf at $.oneOf: its branches may overlap"),
    ({"patternProperties": {"^a": {}, "b$": {}}}, "not disjoint"),
    ({"$ref": "#/$defs/x"}, "at $.$ref: '#/$defs/x': there is nothing"),
    ({"$ref": "http://example.com/x"}, "at $.$ref: 'http://example.com/x': only references within the schema"),
    ({"$ref": "#/$defs/x", "$defs": {"x": {"not": {}}}}, "at $ -> #/$defs/x: the keyword 'not'"),
    (3, "at $: a schema is an object, or true or false"),
    (False, "at $: no value can satisfy the schema"),
    ({"$ref": "#"}, "no value can satisfy the schema"),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "no value can satisfy the schema"),
    ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "no value can satisfy the schema"),
    ({"type": "object", "required": ["a"], "additionalProperties": False}, "no value can satisfy the schema"),
    ({"type": "integer", "minimum": 5, "maximum": 3}, "no value can satisfy the schema: minimum (5) is greater"),
    ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "no value can satisfy the schema: incompatible types"),
    ({"type": "string", "pattern": "^a$", "minLength": 2}, "no value can satisfy the schema"),
]


@pytest.mark.parametrize(("schema", "message"), WRONG)
def test_what_is_refused_says_what_and_where(schema: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(message)):
        matcher_of(schema_spec(schema))


def test_branches_that_never_end_are_left_out() -> None:
    endless = {**OBJECT, "properties": {"x": {"$ref": "#/$defs/bad"}}, "required": ["x"]}
    schema = {"anyOf": [{"$ref": "#/$defs/bad"}, INTEGER], "$defs": {"bad": endless}}
    m = matcher_of(schema_spec(schema))
    assert not m.accept(ord("{"))
    assert accepts(m, "12")


@pytest.mark.parametrize(
    ("text", "compact", "good"),
    [
        ('{"a":1,"b":[1,2]}', False, True),
        ('{ "a" : 1 , "b" : [ 1 , 2 ] }', False, True),
        ('{\n    "a": 1,\n    "b": [\n\t\t1\n]\n}', False, True),
        ('{  "a": 1}', False, False),
        ('{"a":\n\n1}', False, False),
        ('{"a": 1}\n', False, False),
        (' {"a": 1}', False, False),
        ("{" + "\n" + " " * 33 + '"a": 1}', False, False),
        ('{"a":1,"b":[1,2]}', True, True),
        ('{"a": 1}', True, False),
    ],
)
def test_white_space_is_bounded(text: str, compact: bool, good: bool) -> None:
    assert accepts(matcher_of(schema_spec({"type": "object"}, compact=compact)), text) == good


def test_properties_come_in_the_order_of_the_schema() -> None:
    schema = {**OBJECT, "properties": {"z": True, "a": True}, "required": ["m"]}
    assert accepts(matcher_of(schema_spec(schema)), '{"z": 1, "a": 1, "m": 1, "b": 1}')
    assert not accepts(matcher_of(schema_spec(schema)), '{"a": 1, "z": 1, "m": 1}')


def test_closed_objects() -> None:
    schema = {**A_ONLY, "properties": {"a": {"properties": {"b": True}}, "c": {"type": "object"}}}
    spec = schema_spec(schema, closed_objects=True)
    assert accepts(matcher_of(spec), '{"a": {"b": 1}, "c": {"free": 1}}')
    assert not accepts(matcher_of(spec), '{"d": 1}')
    assert not accepts(matcher_of(spec), '{"a": {"c": 1}}')


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"anyOf": [OBJECT]}, 'strict: the outermost schema must have "type": "object"'),
        (A_ONLY, "at $: strict: an object must have additionalProperties: false"),
        ({**A_ONLY, "additionalProperties": False}, "at $: strict: the property 'a' must be listed in required"),
        (
            {**OBJECT, "properties": {"a": OBJECT}, "required": ["a"], "additionalProperties": False},
            "at $.properties.a: strict: an object must have additionalProperties: false",
        ),
    ],
)
def test_strict_schemas_keep_their_rules(schema: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(message)):
        matcher_of(schema_spec(schema, strict=True))
    matcher_of(schema_spec(schema))


def test_a_strict_schema_that_keeps_them() -> None:
    schema = {**A_ONLY, "required": ["a"], "additionalProperties": False}
    assert accepts(matcher_of(schema_spec(schema, strict=True)), '{"a": 1}')


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def test_nesting_is_bounded() -> None:
    m = matcher_of(schema_spec(nested(49)))
    assert accepts(m, '{"a":' * 49 + "1" + "}" * 49)
    with pytest.raises(InvalidRequestError, match="nests deeper than 100 brackets"):
        matcher_of(schema_spec(nested(51)))
    deep = schema_spec(1)
    deep = type(deep)(kind=deep.kind, source="[" * 200_000 + "]" * 200_000)
    with pytest.raises(InvalidRequestError, match="nests deeper"):
        matcher_of(deep)


def test_size_is_bounded() -> None:
    with pytest.raises(InvalidRequestError, match="more than 1048576 bytes"):
        matcher_of(schema_spec({"description": "x" * (1 << 20)}))
    with pytest.raises(InvalidRequestError, match="20001 values; at most 20000"):
        matcher_of(schema_spec({"enum": list(range(20_001))}))
    with pytest.raises(InvalidRequestError, match="33 patterns; at most 32"):
        matcher_of(schema_spec({"patternProperties": {f"^{i}$": True for i in range(33)}}))


def test_a_huge_enum() -> None:
    m = matcher_of(schema_spec({"enum": [f"value {i * 7919}" for i in range(5000)]}))
    assert accepts(m.clone(), '"value 7919"')
    assert not accepts(m.clone(), '"value 7918"')


def test_joined_schemas_that_explode_are_refused() -> None:
    branches = [{"anyOf": [{"required": [f"k{i}_{j}"]} for j in range(4)]} for i in range(10)]
    with pytest.raises(InvalidRequestError, match="too large"):
        matcher_of(schema_spec({"allOf": branches}))


@pytest.mark.parametrize("text", ["", "{", '{"a": NaN}', "nul", "{'a': 1}"])
def test_what_is_no_json(text: str) -> None:
    spec = schema_spec({})
    broken = type(spec)(kind=spec.kind, source=text or " ")
    with pytest.raises(InvalidRequestError, match="no JSON"):
        matcher_of(broken)


def test_the_documentation_lists_every_keyword_and_format() -> None:
    page = (Path(__file__).parents[3] / "docs" / "structured_output.md").read_text()
    for name in (*ENFORCED, *REFUSED, *ANNOTATIONS, *FORMATS):
        assert f"`{name}`" in page, name


def test_schemas_are_read_as_json_text() -> None:
    assert accepts(matcher_of(schema_spec(json.loads('{"type": "integer", "minimum": 1.0, "maximum": 2e0}'))), "2")


def chain(length: int) -> dict[str, Any]:
    links = {f"d{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(length - 1)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{length - 1}": INTEGER}}


def test_long_chains_of_references() -> None:
    assert accepts(matcher_of(schema_spec(chain(1000))), "[[[]]]")
    with pytest.raises(InvalidRequestError, match="more than 1000 places are referred to"):
        matcher_of(schema_spec(chain(1001)))


def wide(num_optional: int, num_required: int) -> dict[str, Any]:
    required = [f"r{i}" for i in range(num_required)]
    properties = dict.fromkeys((*required, *(f"p{i}" for i in range(num_optional))), INTEGER)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def test_many_properties() -> None:
    grammar = BACKEND.compile(schema_spec(wide(450, 2000)))
    required = ", ".join(f'"r{i}": 1' for i in range(2000))
    for names in ((), ("p0",), ("p449",), tuple(f"p{i}" for i in range(450))):
        text = "".join(f',\n  "{name}": 2' for name in names)
        assert accepts(grammar.matcher(()), f"{{ {required}{text}\n}}")
    assert not accepts(grammar.matcher(()), f'{{ {required}, "p450": 1}}')
    with pytest.raises(InvalidRequestError, match=re.escape("at $.properties: 451 are not required; at most 450")):
        matcher_of(schema_spec(wide(451, 1)))


@pytest.mark.parametrize("through_references", [False, True])
def test_patterns_that_meet_are_bounded(through_references: bool) -> None:
    """Their automata multiply: twenty-two of these take the library minutes."""
    patterns = {f"p{i}": {"pattern": f"(a|b)*a(a|b){{{i}}}"} for i in range(3, 25)}
    parts = [{"$ref": f"#/$defs/{name}"} for name in patterns] if through_references else list(patterns.values())
    with pytest.raises(InvalidRequestError, match="22 patterns and formats meet in one text; at most 8"):
        matcher_of(schema_spec({"type": "string", "allOf": parts, "$defs": patterns}))


HOSTILE = [
    {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, INTEGER]}}},
    {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, INTEGER]}}},
    {
        "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
        "$defs": {k: {"type": "object", "properties": {"n": {"$ref": f"#/$defs/{k}"}}} for k in "ab"},
    },
    {"type": "integer", "multipleOf": 9973, "minimum": -(2**53) + 1, "maximum": 2**53 - 1},
    {"type": "number", "minimum": 1e-15, "maximum": 2e-15},
    {"type": "string", "pattern": "^(a|b)*a(a|b){60}$", "minLength": 500, "maxLength": 100000},
    {
        "type": "array",
        "minItems": 1000,
        "maxItems": 10**6,
        "items": {"type": "array", "minItems": 1000, "items": INTEGER},
    },
    {"enum": ["x" * 500_000, "y" * 400_000]},
]


@pytest.mark.parametrize("schema", HOSTILE)
def test_hostile_schemas_end_well(schema: Any) -> None:
    try:
        m = matcher_of(schema_spec(schema))
    except InvalidRequestError as refused:
        assert refused.problem
        return
    assert mask_of(m).any()
