"""The keywords that are not enforced: harmless ones, and ones that are refused, with the way out."""

ANNOTATIONS = frozenset(
    {
        "title",
        "description",
        "default",
        "example",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
        "$schema",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "discriminator",
    }
)
"""They say nothing about which values are valid, so they may stand anywhere. (`$schema` cannot choose another draft;
OpenAPI's `discriminator` only names the property by which a `oneOf` beside it is told apart.) So may `x-...`."""

REFUSED = {
    "not": "a grammar cannot exclude values; list the allowed ones with enum or anyOf",
    "if": "use anyOf with one branch for each case",
    "then": "use anyOf with one branch for each case",
    "else": "use anyOf with one branch for each case",
    "dependentRequired": "use anyOf with one branch for each case",
    "dependentSchemas": "use anyOf with one branch for each case",
    "dependencies": "use anyOf with one branch for each case",
    "contains": "use prefixItems for items that must be there",
    "minContains": "use prefixItems for items that must be there",
    "maxContains": "use prefixItems for items that must be there",
    "propertyNames": "use patternProperties with additionalProperties: false",
    "unevaluatedProperties": "use additionalProperties in one schema that has all properties",
    "unevaluatedItems": "use items",
    "additionalItems": "use prefixItems and items of draft 2020-12",
    "nullable": 'of OpenAPI 3.0; use {"type": ["string", "null"]} or anyOf',
    "$anchor": "refer by JSON pointer, #/$defs/NAME",
    "$dynamicAnchor": "refer by JSON pointer, #/$defs/NAME",
    "$dynamicRef": "refer by JSON pointer, #/$defs/NAME",
    "$recursiveAnchor": "refer by JSON pointer, #/$defs/NAME",
    "$recursiveRef": "refer by JSON pointer, #/$defs/NAME",
    "$vocabulary": "the vocabulary is that of draft 2020-12",
    "id": "of draft 4; use $defs and JSON pointers",
    "$id": "only the outermost schema may have one; refer by JSON pointer, #/$defs/NAME",
}
"""Keyword -> what to do instead."""
