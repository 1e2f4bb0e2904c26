"""From the body of a request to what is asked of the engine."""

import json
import re
import uuid
from dataclasses import dataclass, replace
from typing import Any

from octavo.errors import InvalidRequestError
from octavo.request.structured import StructuredKind, StructuredSpec
from octavo.server.anthropic.blocks import ClientTool
from octavo.server.anthropic.history import Message, messages_of
from octavo.server.anthropic.messages_body import (
    ConversationBody,
    MessagesBody,
    ThinkingAdaptive,
    ThinkingDisabled,
    ThinkingEnabled,
    ToolChoice,
)
from octavo.server.context import ServerContext
from octavo.server.conversation.answer import Answer, AnswerOrder
from octavo.server.conversation.conversation import Conversation, ReasoningOptions, TemplateOptions, ToolUse
from octavo.server.conversation.pieces import AnswerOptions
from octavo.server.conversation.plan import AnswerPlan, plan_answer
from octavo.server.conversation.rendering import template_source
from octavo.server.openai.sampling import generation_order, sampling_params
from octavo.server.openai.tool_body import FunctionDefinition, FunctionTool, tool_use
from octavo.server.prompts import Prompt, fit_prompt
from octavo.server.reasoning.registry import NO_REASONING
from octavo.server.tools.tool import NamedTool

SPELLINGS = {
    "prompt": "messages",
    "stop": "stop_sequences",
    "thinking_token_budget": "thinking.budget_tokens",
    "reasoning_effort": "output_config.effort",
}
"""Names of fields in errors -> how users of this endpoint know them."""
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


@dataclass(frozen=True, kw_only=True)
class MessageOrder:
    """What becomes of a request."""

    answer: Answer
    fills_context: bool
    """`max_tokens` is more than the context has room for, so that is what ends a long answer."""


async def plan_message(server: ServerContext, body: ConversationBody) -> AnswerPlan:
    """
    Raises:
        InvalidRequestError: the conversation cannot be honoured; see SPELLINGS for its fields.
    """
    return await plan_answer(server, _conversation(server, body))


async def order_message(server: ServerContext, body: MessagesBody, *, arrival: float, tenant: str) -> MessageOrder:
    """
    Raises:
        InvalidRequestError, ApiError: the request cannot be honoured; see SPELLINGS for its fields.
    """
    generation_body = body.generation_body()
    params = sampling_params(
        generation_body,
        server.engine.info.sampling_defaults,
        max_tokens=body.max_tokens,
        logprobs=None,
        prompt_logprobs=None,
        detokenize=True,
    )
    plan = await plan_message(server, body)
    token_ids = fit_prompt(plan.token_ids, server.engine.info, truncate=None, max_tokens=1, field="messages")
    room = server.engine.info.max_model_len - len(token_ids)
    params = plan.complete(params.replace(max_tokens=min(body.max_tokens, room)))
    generation = generation_order(
        generation_body,
        server.engine.info,
        request_id=f"msg_{uuid.uuid4().hex}",
        prompts=[token_ids],
        params=params,
        tenant=tenant,
    )
    options = AnswerOptions(skip_special=params.skip_special_tokens, reading=plan.reading)
    order = AnswerOrder(generation=generation, prompts=[Prompt(token_ids)], options=options, arrival=arrival)
    return MessageOrder(answer=Answer(server, order), fills_context=body.max_tokens > room)


def _conversation(server: ServerContext, body: ConversationBody) -> Conversation:
    messages = messages_of(body.system, body.messages)
    conversation = Conversation(
        messages=messages,
        tool_use=_tool_use(body.tools or [], body.tool_choice),
        shape=_shape(body),
        template=_template(messages, body),
    )
    return replace(conversation, reasoning=_reasoning(server, conversation, body))


def _tool_use(tools: list[ClientTool], choice: ToolChoice | None) -> ToolUse:
    for index, tool in enumerate(tools):
        if not _NAME.fullmatch(tool.name):
            problem = "must be 1 to 128 letters, digits, '_' or '-'"
            raise InvalidRequestError(f"tools[{index}].name", tool.name, problem)
    functions = [FunctionTool(type="function", function=_definition(tool)) for tool in tools]
    if choice is None:
        return tool_use(functions, None, None)
    choice.check()
    chosen = _CHOICES[choice.type] if choice.name is None else NamedTool(choice.name)
    return tool_use(functions, chosen, not choice.disable_parallel_tool_use)


def _definition(tool: ClientTool) -> FunctionDefinition:
    return FunctionDefinition(
        name=tool.name, description=tool.description, parameters=tool.input_schema, strict=tool.strict
    )


def _shape(body: ConversationBody) -> StructuredSpec | None:
    if body.output_config is None or body.output_config.format is None:
        return None
    source = json.dumps(body.output_config.format.schema_)
    return StructuredSpec(kind=StructuredKind.JSON_SCHEMA, source=source, field="output_config.format")


def _template(messages: list[Message], body: ConversationBody) -> TemplateOptions:
    """An assistant's message at the end is the beginning of the answer.

    Raises:
        InvalidRequestError: it ends with a call, which has no beginning of an answer behind it.
    """
    continues = messages[-1]["role"] == "assistant"
    if continues and "tool_calls" in messages[-1]:
        problem = "ends with calls of tools; send their results in a user's message"
        raise InvalidRequestError("messages", "tool_use", problem)
    variables: dict[str, Any] = dict(body.chat_template_kwargs or {})
    if isinstance(body.thinking, ThinkingEnabled | ThinkingAdaptive):
        variables.setdefault("enable_thinking", True)
    return TemplateOptions(add_generation_prompt=not continues, continue_final_message=continues, variables=variables)


def _reasoning(server: ServerContext, conversation: Conversation, body: ConversationBody) -> ReasoningOptions:
    """
    Raises:
        InvalidRequestError: the model is not to think, and nothing keeps it from doing so.
    """
    effort = None if body.output_config is None else body.output_config.effort
    match body.thinking:
        case ThinkingEnabled(budget_tokens=budget):
            return ReasoningOptions(effort=effort, budget=budget)
        case ThinkingDisabled() if _thinks(server, conversation):
            return ReasoningOptions(effort="none")
    return ReasoningOptions(effort=effort)


def _thinks(server: ServerContext, conversation: Conversation) -> bool:
    return server.dialects.of(template_source(server.engine, conversation)).reasoning is not NO_REASONING
