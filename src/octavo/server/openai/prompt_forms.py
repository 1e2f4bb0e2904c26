"""The forms in which a field takes one or many prompts."""

from collections.abc import Callable
from typing import Any

PromptForms = list[str] | list[list[int]]
"""Every accepted form brought to a list: texts, or token id lists."""

PROMPT_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {"type": "integer"}},
        {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    ]
}


def prompt_list(most: int) -> Callable[[Any], PromptForms]:
    """A validator that makes a list of at most so many prompts of a text, a list of texts, token ids, or a list of
    token id lists. It raises ValueError at everything else."""

    def listed(value: Any) -> PromptForms:
        if isinstance(value, str):
            return [value]
        if not isinstance(value, list):
            raise ValueError("must be a text, a list of texts, token ids, or a list of token id lists")
        if not value:
            raise ValueError("must not be empty")
        if _all_ids(value):
            return [value]
        if len(value) > most:
            raise ValueError(f"must hold at most {most} prompts")
        if all(isinstance(item, str) for item in value):
            return value
        if all(isinstance(item, list) and _all_ids(item) for item in value):
            return value
        raise ValueError(
            "must be all texts, all token ids (integers), or all lists of token ids; empty lists do not count"
        )

    return listed


def _all_ids(items: list[Any]) -> bool:
    return bool(items) and all(type(item) is int for item in items)
