"""Random schemas of the supported keywords."""

from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "b", "c d", "é", '"q"', "x1", "x2")
PATTERNS = (
    *("^a+$", "b", "^[a-z]{2,4}$", r"^\d+-\w*$", "^(foo|bar)", "x$", '^[^"]*$', r"\.", r"^\S+ \S+$", "^é", r"^[^\\]*$"),
    *(r"^\D\W$", "^a|b$"),
)
FORMATS = ("date", "date-time", "email", "ipv4", "ipv6", "uuid", "duration", "hostname", "uri")
NUMBERS = st.one_of(
    st.sampled_from([0, 1, -1, 3, 10, 2.5, -0.5, 100, 1e6, 0.001]),
    st.integers(-1000, 1000),
    st.integers(-5000, 5000).map(lambda n: n / 100),
)
SCALARS = st.sampled_from([None, True, False, 1, 0, -5, 2.5, "a", "ab", 'é"\\\n', "日本\U0001f600", ""])
LITERALS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=2),
    max_leaves=4,
)


def optional(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of the keywords, in any order."""
    return (
        st.fixed_dictionaries({}, optional=keywords)
        .flatmap(lambda found: st.permutations(list(found.items())))
        .map(dict)
    )


def typed(kind: Any, rest: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return rest.map(lambda keywords: {"type": kind, **keywords})


def leaves() -> st.SearchStrategy[Any]:
    numeric = optional(
        minimum=NUMBERS,
        maximum=NUMBERS,
        exclusiveMinimum=NUMBERS,
        exclusiveMaximum=NUMBERS,
        multipleOf=st.sampled_from([1, 2, 3, 7, 0.5, 0.01]),
    )
    text = optional(
        minLength=st.integers(0, 3),
        maxLength=st.integers(0, 8),
        pattern=st.sampled_from(PATTERNS),
        format=st.sampled_from(FORMATS),
    )
    return st.one_of(
        st.booleans(),
        typed("integer", numeric),
        typed("number", numeric),
        typed("string", text),
        st.sampled_from([{"type": "null"}, {"type": "boolean"}, {"type": ["string", "null"], "maxLength": 2}, {}]),
        st.lists(LITERALS, min_size=1, max_size=4).map(lambda values: {"enum": values}),
        LITERALS.map(lambda value: {"const": value}),
        optional(minLength=st.integers(0, 3), maximum=NUMBERS, maxItems=st.integers(0, 2)),
        st.sampled_from([{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/m"}]),
    )


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    name = st.sampled_from(NAMES)
    array = optional(items=inner, prefixItems=several, minItems=st.integers(0, 3), maxItems=st.integers(0, 4))
    properties = st.dictionaries(name, inner, max_size=4)
    some_object = optional(
        properties=properties,
        required=st.lists(name, unique=True, max_size=2),
        additionalProperties=st.just(False) | inner,
        patternProperties=st.dictionaries(st.sampled_from(["^x", "^[a-c]$", "q"]), inner, min_size=1, max_size=1),
        minProperties=st.integers(0, 1),
        maxProperties=st.integers(0, 2),
    )
    whole_object = properties.map(
        lambda found: {"type": "object", "properties": found, "required": list(found), "additionalProperties": False}
    )
    joined = st.sampled_from(["anyOf", "oneOf", "allOf"]).flatmap(lambda kind: st.fixed_dictionaries({kind: several}))
    beside = st.tuples(joined, typed("object", some_object)).map(lambda two: {**two[0], **two[1]})
    return st.one_of(
        typed("array", array), typed("object", some_object), some_object, whole_object, whole_object, joined, beside
    )


INNER = st.recursive(leaves(), larger, max_leaves=8)
SCHEMAS = st.tuples(INNER.filter(lambda schema: isinstance(schema, dict)), INNER, INNER).map(
    lambda parts: {**parts[0], "$defs": {"n": parts[1], "m": parts[2]}}
)
"""Schemas whose references may go in circles."""
