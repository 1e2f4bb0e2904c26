"""Fields of a request that say what shape the answer must have."""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from octavo.errors import InvalidRequestError
from octavo.request.structured import StructuredKind, StructuredSpec
from octavo.server.fields import StrictModel

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def _schema_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("must be 1 to 64 letters, digits, '_' or '-'")
    return name


class JsonSchemaFormat(StrictModel):
    """OpenAI's wrapping of a schema."""

    name: Annotated[str, AfterValidator(_schema_name)]
    description: str | None = None
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(StrictModel):
    """OpenAI's `response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None

    def spec(self) -> StructuredSpec | None:
        """
        Raises:
            InvalidRequestError: the schema is missing, or there is one that the type does not take.
        """
        if (self.type == "json_schema") != (self.json_schema is not None):
            problem = "goes with type 'json_schema', and only with that"
            raise InvalidRequestError("response_format.json_schema", None, problem)
        if self.json_schema is None:
            return None if self.type == "text" else StructuredSpec(kind=StructuredKind.JSON_OBJECT, field=RESPONSE)
        given = self.json_schema.schema_
        return StructuredSpec(
            kind=StructuredKind.JSON_SCHEMA,
            source=json.dumps({} if given is None else given),
            strict=bool(self.json_schema.strict),
            field=RESPONSE,
        )


class StructuredOutputs(StrictModel):
    """vLLM's `structured_outputs`: one kind, and how it is to be taken."""

    json_: dict[str, Any] | bool | str | None = Field(default=None, alias="json")
    """A schema, or the text of one."""
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: Any = None
    whitespace_pattern: Any = None
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None
    disable_fallback: bool | None = None
    """There is one backend, so there is nothing to fall back to."""

    def spec(self, field: str = "structured_outputs") -> StructuredSpec:
        """
        Args:
            field: the name in errors.

        Raises:
            InvalidRequestError: not exactly one kind is given, or one that is not supported.
        """
        for name in ("structural_tag", "whitespace_pattern"):
            if getattr(self, name) is not None:
                raise InvalidRequestError(f"{field}.{name}", getattr(self, name), "is not supported")
        kinds = [kind for kind, given in self._given().items() if given is not None and given is not False]
        if len(kinds) != 1:
            known = ", ".join(self._given())
            raise InvalidRequestError(field, [str(kind) for kind in kinds], f"must hold exactly one of {known}")
        (kind,) = kinds
        return StructuredSpec(
            kind=kind,
            source=self._source(kind, field),
            choices=tuple(self.choice or ()),
            compact=bool(self.disable_any_whitespace),
            closed_objects=bool(self.disable_additional_properties),
            field=field,
        )

    def _given(self) -> dict[StructuredKind, object]:
        schema = {} if self.json_ is False else self.json_
        return {
            StructuredKind.JSON_SCHEMA: schema,
            StructuredKind.REGEX: self.regex,
            StructuredKind.CHOICE: self.choice,
            StructuredKind.GRAMMAR: self.grammar,
            StructuredKind.JSON_OBJECT: self.json_object,
        }

    def _source(self, kind: StructuredKind, field: str) -> str:
        match kind:
            case StructuredKind.JSON_SCHEMA:
                return _schema_text(self.json_, f"{field}.json")
            case StructuredKind.REGEX:
                return self.regex or ""
            case StructuredKind.GRAMMAR:
                return self.grammar or ""
            case _:
                return ""


RESPONSE = "response_format"


def _schema_text(schema: dict[str, Any] | bool | str | None, field: str) -> str:
    if not isinstance(schema, str):
        return json.dumps(schema)
    try:
        json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(field, schema, f"must be a JSON Schema, or the text of one: {error}") from None
    return schema
