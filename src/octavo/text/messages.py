"""Messages as clients send them, made into messages as chat templates expect them.

Templates are written against strings: a list of parts, a missing content or tool arguments as JSON text make
most of them fail. This is what servers do before rendering, and what the Python API does, too, so that both
give one prompt.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.errors import InvalidRequestError
from octavo.text.call_arguments import CallArguments
from octavo.text.content_form import ContentForm

PART_SEPARATOR = "\n"
"""Between the text parts of one message, as llama.cpp's server and vLLM have it."""


def flatten_messages(
    messages: Sequence[Mapping[str, Any]], form: ContentForm = ContentForm.TEXT
) -> list[dict[str, Any]]:
    """The same messages, none of them changed in place, with

    - content in the form that the template wants: for a text, parts are joined by a newline; null or missing content is
      the empty text, or no part;
    - tool calls: an empty or null list left out; arguments that come as JSON text parsed, null or empty ones as `{}`.

    Raises:
        InvalidRequestError: what cannot be so; the field is a path such as `messages[2].content[0].type`.
    """
    return [_flat(message, f"messages[{at}]", form) for at, message in enumerate(messages)]


def _flat(message: Mapping[str, Any], field: str, form: ContentForm) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InvalidRequestError(field, message, "must be an object with a role and a content")
    if not isinstance(message.get("role"), str):
        raise InvalidRequestError(f"{field}.role", message.get("role"), "must be a string such as 'user'")
    flat = {**message, "content": _content(message.get("content"), f"{field}.content", form)}
    calls = flat.pop("tool_calls", None)
    if calls:
        flat["tool_calls"] = _tool_calls(calls, f"{field}.tool_calls")
    return flat


def _content(content: object, field: str, form: ContentForm) -> str | list[dict[str, str]]:
    texts = _texts(content, field)
    is_list = isinstance(content, list | tuple)
    if form is ContentForm.TEXT or (form is ContentForm.EITHER and not is_list):
        return PART_SEPARATOR.join(texts)
    return [{"type": "text", "text": text} for text in texts]


def _texts(content: object, field: str) -> list[str]:
    """The texts of a content's parts."""
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list | tuple):
        raise InvalidRequestError(field, content, "must be text, a list of text parts, or null")
    return [_part_text(part, f"{field}[{at}]") for at, part in enumerate(content)]


def _part_text(part: object, field: str) -> str:
    if not isinstance(part, Mapping):
        raise InvalidRequestError(field, part, "must be an object such as {'type': 'text', 'text': '...'}")
    if part.get("type") != "text":
        raise InvalidRequestError(f"{field}.type", part.get("type"), "only text parts are supported")
    if not isinstance(part.get("text"), str):
        raise InvalidRequestError(f"{field}.text", part.get("text"), "must be a string")
    text: str = part["text"]
    return text


def _tool_calls(calls: object, field: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list | tuple):
        raise InvalidRequestError(field, calls, "must be a list of tool calls")
    return [_tool_call(call, f"{field}[{at}]") for at, call in enumerate(calls)]


def _tool_call(call: object, field: str) -> dict[str, Any]:
    """OpenAI's form keeps name and arguments under `function`; Hugging Face's has them in the call itself."""
    if not isinstance(call, Mapping):
        raise InvalidRequestError(field, call, "must be an object with a function")
    if "function" in call:
        return {**call, "function": _function(call["function"], f"{field}.function")}
    return _function(call, field)


def _function(function: object, field: str) -> dict[str, Any]:
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidRequestError(field, function, "must be an object with a name and arguments")
    return {**function, "arguments": _arguments(function.get("arguments"), f"{field}.arguments")}


def _arguments(arguments: object, field: str) -> CallArguments:
    if arguments is None or arguments == "":
        return CallArguments({})
    try:
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, Mapping):
        raise InvalidRequestError(field, arguments, "must be a JSON object, or the text of one")
    return CallArguments(parsed)
