"""What shape an answer must have: one constraint, as plain data."""

import hashlib
from enum import StrEnum

import msgspec

from octavo.errors import InvalidRequestError


class StructuredKind(StrEnum):
    """How the shape is described."""

    JSON_OBJECT = "json_object"
    """Any JSON object."""
    JSON_SCHEMA = "json_schema"
    """A JSON value that a schema allows; `source` is the schema as JSON text."""
    REGEX = "regex"
    """The whole answer matches the regular expression in `source`."""
    CHOICE = "choice"
    """The answer is one of `choices`."""
    GRAMMAR = "grammar"
    """The answer is a `root` of the grammar in `source`, which is GBNF (vLLM and xgrammar say EBNF)."""
    CALLS = "calls"
    """The answer is tool calls, as `calls` says."""


class ArgumentSyntax(StrEnum):
    """How the arguments of a call are written. The names are those of the tool families."""

    JSON = "json"
    PYTHON = "python"
    XML = "xml"
    ESCAPED = "escaped"


class CallShape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One way to write a call: `begin`, the arguments, `end`."""

    begin: str
    end: str
    schema: str = "{}"
    """JSON Schema of the arguments object, as JSON text."""
    syntax: ArgumentSyntax = ArgumentSyntax.JSON
    quote: str = ""
    """With ArgumentSyntax.ESCAPED: what stands around strings."""


class CallsShape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer of calls: `begin call (separator call)* end`; with a trigger, calls in a free text."""

    calls: tuple[CallShape, ...]
    begin: str = ""
    separator: str = ""
    end: str = ""
    trigger: str = ""
    """Where no call is asked for (`min_calls` 0): text that begins calls. A free answer goes on until it appears."""
    min_calls: int = 1
    max_calls: int | None = None
    """None: any number."""
    content: str = ""
    """With a trigger: JSON Schema, as JSON text, of an answer that calls nothing; an answer is that or calls. Empty: it
    is a free text with calls."""


class StructuredSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The shape of one answer.

    Raises:
        InvalidRequestError: what the kind needs is missing, or there is more than it takes.
    """

    kind: StructuredKind
    source: str = ""
    choices: tuple[str, ...] = ()
    calls: CallsShape | None = None
    strict: bool = False
    """With JSON_SCHEMA: the schema must keep OpenAI's rules for strict schemas."""
    compact: bool = False
    """With JSON: no white space between tokens."""
    closed_objects: bool = False
    """With JSON: an object schema that does not speak of additional properties allows none."""
    field: str = "structured_outputs"
    """The request field that this came from, to name in errors."""

    def __post_init__(self) -> None:
        needed = _NEEDED[self.kind]
        given = {"source": bool(self.source), "choices": bool(self.choices), "calls": self.calls is not None}
        for part, is_given in given.items():
            if is_given != (part == needed):
                problem = f"{self.kind} {'needs' if part == needed else 'takes no'} {part}"
                raise InvalidRequestError(self.field, getattr(self, part), problem)

    def key(self) -> bytes:
        """Equal for specs that mean the same; 32 bytes."""
        nameless = msgspec.structs.replace(self, field="")
        return hashlib.sha256(msgspec.msgpack.encode(nameless)).digest()


_NEEDED = {
    StructuredKind.JSON_OBJECT: None,
    StructuredKind.JSON_SCHEMA: "source",
    StructuredKind.REGEX: "source",
    StructuredKind.CHOICE: "choices",
    StructuredKind.GRAMMAR: "source",
    StructuredKind.CALLS: "calls",
}
"""The one field that each kind is described by."""
