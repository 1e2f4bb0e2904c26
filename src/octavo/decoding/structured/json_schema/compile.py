"""From a schema's text to the schema that is given to the backend."""

from dataclasses import dataclass
from typing import Any

from octavo.decoding.structured.json_schema.document import read
from octavo.decoding.structured.json_schema.joins import check_joins
from octavo.decoding.structured.json_schema.productive import prune
from octavo.decoding.structured.json_schema.rewrite import Rewriter
from octavo.decoding.structured.json_schema.strict import check_strict_root
from octavo.decoding.structured.problem import ShapeError

_ESCAPES = 'nrbtf\\"'
r"""Letters behind a backslash. Without `u` every text can be written in one way only: with it, `{"\u0061": 1}` is a way
around what a schema says of `a`."""
_WHITE_SPACE = r"\x20|\n(?:\x20{0,32}|\t{0,8})"
"""Between two tokens: nothing, one space, or a line break with an indentation. More would be a way to say nothing for
ever; less would forbid what models write."""


@dataclass(frozen=True)
class BackendSchema:
    """A schema of which the backend enforces every word."""

    body: dict[str, Any]
    one_of_places: tuple[str, ...] = ()
    """Where `oneOf` stands in the user's schema."""


def backend_schema(
    source: str, *, strict: bool = False, compact: bool = False, closed_objects: bool = False
) -> BackendSchema:
    """The schema for a user's text; see `StructuredSpec` for the settings.

    Raises:
        ShapeError: names the keyword and the place.
    """
    document = read(source)
    if strict:
        check_strict_root(document)
    rewriter = Rewriter(document, strict, closed_objects)
    rewritten = rewriter.rewrite()
    check_joins(rewritten, rewriter.definitions)
    root, definitions = prune(rewritten, rewriter.definitions)
    if root is False:
        raise ShapeError("no value can satisfy the schema", "$")
    body = {} if root is True else root
    if definitions:
        body = {**body, "$defs": definitions}
    return BackendSchema({"x-guidance": _layout(compact), **body}, tuple(rewriter.one_of_places))


def _layout(compact: bool) -> dict[str, Any]:
    spaces: dict[str, Any] = {"whitespace_flexible": False} if compact else {"whitespace_pattern": _WHITE_SPACE}
    return {"json_allowed_escapes": _ESCAPES, **spaces}
