"""From a conversation to prompt ids."""

import asyncio
from collections.abc import Mapping
from typing import Any

from octavo.errors import InvalidRequestError
from octavo.server.conversation.conversation import Conversation
from octavo.server.prompts import LONG_TEXT_CHARS
from octavo.server.serving_engine import ServingEngine, TextCodec
from octavo.server.tools.tool import Tool

MAX_MARKER_TOKENS = 64
"""No marker that opens reasoning has more."""


async def render(engine: ServingEngine, conversation: Conversation) -> list[int]:
    """Token ids of a conversation; long ones are rendered in a thread, so that they hold up nobody.

    Raises:
        InvalidRequestError: the model cannot chat, or its template refuses the conversation.
    """
    source = template_source(engine, conversation)
    options = conversation.template
    messages = [_with_spellings(message) for message in conversation.messages]
    tools = [tool_definition(tool) for tool in conversation.tool_use.offered]
    variables = effort_variables(source, conversation.reasoning.effort) | dict(options.variables)
    if options.documents and "documents" not in source:
        raise InvalidRequestError("documents", "...", "this model's chat template reads none; put them in a message")

    def rendered() -> list[int]:
        return engine.render_chat(
            messages,
            tools=tools or None,
            documents=options.documents or None,
            add_generation_prompt=options.add_generation_prompt,
            continue_final_message=options.continue_final_message,
            template=options.source,
            variables=variables,
        )

    is_long = num_characters((messages, tools, options.documents, variables, options.source)) > LONG_TEXT_CHARS
    return await asyncio.to_thread(rendered) if is_long else rendered()


def template_source(engine: ServingEngine, conversation: Conversation) -> str:
    """The text of the chat template in use.

    Raises:
        InvalidRequestError: what it takes to chat is missing; says what to do.
    """
    codec(engine)
    if conversation.template.source is not None:
        return conversation.template.source
    if engine.template is None:
        fix = "use /v1/completions, or start the server with --chat-template FILE"
        raise InvalidRequestError("messages", "...", f"this model has no chat template: {fix}")
    return engine.template.source


def codec(engine: ServingEngine) -> TextCodec:
    """The tokenizer.

    Raises:
        InvalidRequestError: there is none.
    """
    if engine.tokenizer is None:
        problem = "this server runs without a tokenizer: send token ids to /v1/completions"
        raise InvalidRequestError("messages", "...", problem)
    return engine.tokenizer


def effort_variables(source: str, effort: str | None) -> dict[str, Any]:
    """How a template is told of the effort: by its name, or by a switch.

    Raises:
        InvalidRequestError: it knows neither, so the effort would have no effect.
    """
    if effort is None:
        return {}
    if "reasoning_effort" in source:
        return {"reasoning_effort": effort}
    if "enable_thinking" in source:
        return {"enable_thinking": effort != "none"}
    problem = "this model's chat template reads neither reasoning_effort nor enable_thinking"
    raise InvalidRequestError("reasoning_effort", effort, problem)


def _with_spellings(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message with reasoning by both names that templates know."""
    if "reasoning" not in message:
        return message
    return {**message, "reasoning_content": message["reasoning"]}


def tool_definition(tool: Tool) -> dict[str, Any]:
    """A tool as chat templates read it; `strict` is not for the model."""
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function | {"parameters": tool.parameters}}


def prompt_end(tokenizer: TextCodec, token_ids: list[int]) -> str:
    """The end of a prompt as text, long enough for any marker."""
    return tokenizer.decode(token_ids[-MAX_MARKER_TOKENS:], skip_special=False)


def num_characters(value: object) -> int:
    """Of all texts in nested data."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(num_characters, value.keys())) + sum(map(num_characters, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(num_characters, value))
    return 1
