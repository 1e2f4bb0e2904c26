"""What a conversation asks of the engine, and how its answers are read."""

from dataclasses import dataclass

import msgspec

from octavo.errors import InvalidRequestError
from octavo.request.params import SamplingParams
from octavo.request.reasoning import ReasoningSpec
from octavo.request.structured import CallsShape, StructuredKind, StructuredSpec
from octavo.server.context import ServerContext
from octavo.server.conversation.conversation import Conversation, ToolUse
from octavo.server.conversation.dialect import Dialect
from octavo.server.conversation.reading import Reading
from octavo.server.conversation.reasoning_markers import reasoning_spec
from octavo.server.conversation.rendering import codec, prompt_end, render, template_source
from octavo.server.reasoning.registry import NO_REASONING
from octavo.server.tools.constraint import calls_shape
from octavo.server.tools.tool import NamedTool


@dataclass(frozen=True, kw_only=True)
class AnswerPlan:
    """A conversation made ready for the engine."""

    token_ids: list[int]
    """The prompt."""
    shape: StructuredSpec | None
    """What the answer must look like, behind its reasoning."""
    reasoning: ReasoningSpec | None
    """Where that is, for the engine."""
    reading: Reading

    def complete(self, params: SamplingParams) -> SamplingParams:
        """The request's parameters with what the plan adds: the shape and where it begins, and control tokens in the
        text as long as they may mark calls or reasoning."""
        return params.replace(
            structured_outputs=self.shape,
            reasoning=self.reasoning,
            skip_special_tokens=params.skip_special_tokens and self.reading.is_plain,
        )


async def plan_answer(server: ServerContext, conversation: Conversation) -> AnswerPlan:
    """Renders and checks a conversation.

    Raises:
        InvalidRequestError: it cannot be honoured. Fields are named as in chat completions.
    """
    dialect = server.dialects.of(template_source(server.engine, conversation))
    _check(conversation, dialect)
    tokenizer = codec(server.engine)
    token_ids = await render(server.engine, conversation)
    opened = dialect.reasoning.opened_by(prompt_end(tokenizer, token_ids))
    shape = answer_shape(conversation, dialect)
    budget = conversation.reasoning.budget
    return AnswerPlan(
        token_ids=token_ids,
        shape=shape,
        reasoning=reasoning_spec(tokenizer, dialect.reasoning, is_open=bool(opened), shape=shape, budget=budget),
        reading=_reading(conversation, dialect, opened),
    )


def _check(conversation: Conversation, dialect: Dialect) -> None:
    _check_end(conversation)
    _check_tools(conversation.tool_use, dialect)


def _check_end(conversation: Conversation) -> None:
    """Checks how the conversation goes on."""
    template = conversation.template
    if not conversation.messages:
        raise InvalidRequestError("messages", [], "must hold at least one message")
    if not template.continue_final_message:
        return
    last = conversation.messages[-1]
    if template.add_generation_prompt:
        problem = "cannot go with add_generation_prompt: the last message is either open or followed by a new one"
        raise InvalidRequestError("continue_final_message", True, problem)
    if last.get("tool_calls") or last["role"] == "tool":
        problem = "the last message is no text that could go on: it holds tool calls, or the result of one"
        raise InvalidRequestError("continue_final_message", True, problem)


def _check_tools(use: ToolUse, dialect: Dialect) -> None:
    names = [tool.name for tool in use.tools]
    if use.offered and dialect.tools is None:
        problem = "this model's chat template has no place for tools; start with --chat-template FILE of one that has"
        raise InvalidRequestError("tools", names, problem)
    if isinstance(use.choice, NamedTool) and use.choice.name not in names:
        raise InvalidRequestError("tool_choice", use.choice.name, "is none of the tools")
    if use.choice == "required" and not names:
        raise InvalidRequestError("tool_choice", use.choice, "there are no tools to call")


def _reading(conversation: Conversation, dialect: Dialect, opened: str) -> Reading:
    use, options = conversation.tool_use, conversation.reasoning
    return Reading(
        reasoning=dialect.reasoning if options.separate else NO_REASONING,
        opened=opened if options.separate else "",
        include_reasoning=options.include,
        family=dialect.tools if use.offered else None,
        tools=use.offered,
        parallel=use.parallel,
    )


def answer_shape(conversation: Conversation, dialect: Dialect) -> StructuredSpec | None:
    """What the whole answer must look like: calls where they are required or strict, calls or content of the
    conversation's shape where both may be, else that shape.

    Raises:
        InvalidRequestError: calls cannot stand beside content of this shape.
    """
    use, shape = conversation.tool_use, conversation.shape
    if use.choice == "none" or not use.tools or dialect.tools is None:
        return shape
    strict = any(tool.strict for tool in use.tools)
    if use.choice == "auto" and shape is None and not strict:
        return None
    calls = calls_shape(dialect.tools.call_format(use.tools, use.choice, parallel=use.parallel))
    if use.choice != "auto" or shape is None:
        return StructuredSpec(kind=StructuredKind.CALLS, calls=calls, field="tools")
    return _calls_or(calls, shape)


def _calls_or(calls: CallsShape, shape: StructuredSpec) -> StructuredSpec:
    """Calls, or JSON of a shape."""
    schema = {StructuredKind.JSON_OBJECT: '{"type": "object"}', StructuredKind.JSON_SCHEMA: shape.source}.get(
        shape.kind
    )
    if schema is None or not calls.trigger:
        problem = "an answer of this shape could not call; set tool_choice to none or required, or leave out the tools"
        raise InvalidRequestError(shape.field, str(shape.kind), problem)
    return StructuredSpec(
        kind=StructuredKind.CALLS,
        calls=msgspec.structs.replace(calls, content=schema),
        strict=shape.strict,
        compact=shape.compact,
        closed_objects=shape.closed_objects,
        field=shape.field,
    )
