"""From a spec to a grammar text for llguidance: one function for each kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from octavo.decoding.structured import lark
from octavo.decoding.structured.calls import calls_rules
from octavo.decoding.structured.gbnf import gbnf_rules
from octavo.decoding.structured.json_schema.compile import BackendSchema, backend_schema
from octavo.decoding.structured.limits import MAX_CHOICES, MAX_SOURCE_BYTES
from octavo.decoding.structured.problem import ShapeError
from octavo.decoding.structured.regex_dialect import full_match
from octavo.request.structured import StructuredKind, StructuredSpec


@dataclass(frozen=True)
class Translation:
    """A grammar, and what its errors need to be told in the user's terms."""

    grammar: str
    one_of_places: tuple[str, ...] = ()


def translate(spec: StructuredSpec, specials: Mapping[str, int]) -> Translation:
    """The grammar of a spec.

    Args:
        spec: the shape.
        specials: spelling -> id of the vocabulary's control tokens.

    Raises:
        ShapeError: the spec is wrong, asks for what is not supported, or is too large.
    """
    return KINDS[spec.kind](spec, specials)


def library_problem(error: str, translation: Translation | None = None) -> str:
    """The library's message, in one line and without what only its authors can read."""
    first = next((line.strip() for line in error.splitlines() if line.strip()), "unknown")
    for marker in ("failed to compile JSON schema: ", "Parser Error: "):
        first = first.partition(marker)[2] or first
    if first.startswith("Current row has"):
        return "there are too many ways to read it"
    if "oneOf constraints" in first:
        places = ", ".join(translation.one_of_places) if translation else ""
        return f"oneOf at {places}: its branches may overlap; use anyOf, or give each a required const property"
    return first.replace("Unsatisfiable schema: ", "no value can satisfy the schema: ")


def _json_object(spec: StructuredSpec, specials: Mapping[str, int]) -> Translation:
    return _schema('{"type": "object"}', spec)


def _json_schema(spec: StructuredSpec, specials: Mapping[str, int]) -> Translation:
    return _schema(spec.source, spec)


def _schema(source: str, spec: StructuredSpec) -> Translation:
    schema = _backend_schema(source, spec)
    return Translation(lark.grammar([f"start: {lark.one_of_json(schema.body)}"]), schema.one_of_places)


def _backend_schema(source: str, spec: StructuredSpec) -> BackendSchema:
    return backend_schema(source, strict=spec.strict, compact=spec.compact, closed_objects=spec.closed_objects)


def _regex(spec: StructuredSpec, specials: Mapping[str, int]) -> Translation:
    _check_size(len(spec.source))
    return Translation(lark.grammar(["start: TEXT", f"TEXT: {lark.regex(full_match(spec.source))}"]))


def _choice(spec: StructuredSpec, specials: Mapping[str, int]) -> Translation:
    """One terminal, so that a choice that begins another is left only by an end token."""
    if len(spec.choices) > MAX_CHOICES:
        raise ShapeError(f"{len(spec.choices)} choices; at most {MAX_CHOICES} are supported")
    _check_size(sum(map(len, spec.choices)))
    words = " | ".join(lark.word(choice) for choice in dict.fromkeys(spec.choices))
    return Translation(lark.grammar(["start: TEXT", f"TEXT: {words}"]))


def _grammar(spec: StructuredSpec, specials: Mapping[str, int]) -> Translation:
    return Translation(lark.grammar(gbnf_rules(spec.source)))


def _calls(spec: StructuredSpec, specials: Mapping[str, int]) -> Translation:
    if spec.calls is None:
        raise ShapeError("there are no calls")
    if not spec.calls.content:
        return Translation(lark.grammar(calls_rules(spec.calls, specials, compact=spec.compact)))
    schema = _backend_schema(spec.calls.content, spec)
    rules = calls_rules(spec.calls, specials, compact=spec.compact, content=lark.one_of_json(schema.body))
    return Translation(lark.grammar(rules), schema.one_of_places)


def _check_size(num_characters: int) -> None:
    if num_characters > MAX_SOURCE_BYTES:
        raise ShapeError(f"{num_characters} characters; at most {MAX_SOURCE_BYTES} are supported")


KINDS: dict[StructuredKind, Callable[[StructuredSpec, Mapping[str, int]], Translation]] = {
    StructuredKind.JSON_OBJECT: _json_object,
    StructuredKind.JSON_SCHEMA: _json_schema,
    StructuredKind.REGEX: _regex,
    StructuredKind.CHOICE: _choice,
    StructuredKind.GRAMMAR: _grammar,
    StructuredKind.CALLS: _calls,
}
"""Kind -> its translator."""
