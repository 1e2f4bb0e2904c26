"""The base of request bodies, and what the server does with each field. docs/server.md prints the table made of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from octavo.errors import InvalidRequestError


@dataclass(frozen=True)
class Honoured:
    """The field has its effect."""

    note: str = ""


@dataclass(frozen=True)
class Harmless:
    """The field is accepted and changes nothing, because nothing can follow from it here."""

    note: str


@dataclass(frozen=True)
class Refused:
    """The field is known, but a value that would have an effect is refused with 400."""

    reason: str
    neutral: tuple[Any, ...] = ()
    """Values without effect, accepted besides null."""


Treatment = Honoured | Harmless | Refused


class StrictModel(BaseModel):
    """A JSON object from a client: strict types, finite numbers, no unknown fields. null means absent."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        frozen=True,
        protected_namespaces=(),
        defer_build=True,  # validators are made at the first request that needs them, not all at the server's start
    )


def tag_by_type(*known: str) -> Callable[[Any], str]:
    """For a `Discriminator`: `[TYPE]` of an object whose `type` is known, else `[other]`. Tags are no identifiers, so
    that they are left out of a field's path in errors."""

    def tag(value: Any) -> str:
        kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
        return f"[{kind}]" if kind in known else "[other]"

    return tag


class RequestBody(StrictModel):
    """A whole request body: every field says how it is treated."""

    def refuse_unsupported(self) -> None:
        """Checks the fields that are known but not supported.

        Raises:
            InvalidRequestError: naming the first such field.
        """
        for name, treatment in treatments(type(self)).items():
            if isinstance(treatment, Refused):
                value = getattr(self, name)
                if value is not None and value not in treatment.neutral:
                    raise InvalidRequestError(name, value, treatment.reason)


def treatments(body: type[RequestBody]) -> dict[str, Treatment]:
    """Field -> what the server does with it, in the order of the class.

    Raises:
        TypeError: a field lacks its treatment (a programming mistake, caught by the tests).
    """
    found: dict[str, Treatment] = {}
    for name, field in body.model_fields.items():
        marks = [mark for mark in field.metadata if isinstance(mark, Honoured | Harmless | Refused)]
        if len(marks) != 1:
            raise TypeError(f"{body.__name__}.{name} needs exactly one of Honoured, Harmless, Refused")
        found[name] = marks[0]
    return found
