"""The body of POST /v1/completions."""

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from octavo.server.fields import Honoured, Refused
from octavo.server.openai.generation_body import GenerationBody

MAX_PROMPTS = 1024

PromptForms = list[str] | list[list[int]]
"""Every accepted form brought to a list: texts, or token id lists."""


def _prompt_list(value: Any) -> PromptForms:
    """A text, a list of texts, token ids, or a list of token id lists, as a list of prompts.

    Raises:
        ValueError: none of the four.
    """
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise ValueError("must be a text, a list of texts, token ids, or a list of token id lists")
    if not value:
        raise ValueError("must not be empty")
    if _all_ids(value):
        return [value]
    if len(value) > MAX_PROMPTS:
        raise ValueError(f"must hold at most {MAX_PROMPTS} prompts")
    if all(isinstance(item, str) for item in value) or all(isinstance(item, list) and _all_ids(item) for item in value):
        return value
    raise ValueError("must be all texts, all token ids (integers), or all lists of token ids; empty lists do not count")


def _all_ids(items: list[Any]) -> bool:
    return bool(items) and all(type(item) is int for item in items)


_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {"type": "integer"}},
        {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    ]
}


class CompletionBody(GenerationBody):
    """A completion request."""

    prompt: Annotated[
        PromptForms,
        PlainValidator(_prompt_list),
        WithJsonSchema(_SCHEMA),
        Honoured("text, list of texts, token ids, list of token id lists"),
    ]
    echo: Annotated[bool | None, Honoured("the prompt before the answer, with its logprobs if asked")] = None
    logprobs: Annotated[int | None, Honoured("legacy object; up to `--max-logprobs`")] = None
    best_of: Annotated[int | None, Honoured("only equal to `n`: ranking more answers is not offered")] = None
    suffix: Annotated[
        str | None, Honoured("what follows the answer; for models that fill in the middle, such as qwen2.5-coder")
    ] = None
    prompt_embeds: Annotated[Any, Refused("prompts are texts or token ids")] = None
