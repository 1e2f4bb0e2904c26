"""What a conversation asks of the engine, and how its answers are read."""

from dataclasses import dataclass

from octavo.errors import InvalidRequestError
from octavo.request.params import SamplingParams
from octavo.request.structured import StructuredKind, StructuredSpec
from octavo.server.context import ServerContext
from octavo.server.conversation.conversation import Conversation, ToolUse
from octavo.server.conversation.dialect import Dialect
from octavo.server.conversation.reading import Reading
from octavo.server.conversation.rendering import prompt_end, render, template_source
from octavo.server.reasoning.registry import NO_REASONING
from octavo.server.serving_engine import ServingEngine
from octavo.server.tools.constraint import calls_shape
from octavo.server.tools.tool import NamedTool


@dataclass(frozen=True, kw_only=True)
class AnswerPlan:
    """A conversation made ready for the engine."""

    token_ids: list[int]
    """The prompt."""
    shape: StructuredSpec | None
    """What the answer must look like."""
    reading: Reading

    def complete(self, params: SamplingParams) -> SamplingParams:
        """The request's parameters with what the plan adds: the shape, and control tokens in the text as long as they
        may mark calls or reasoning."""
        spells = params.skip_special_tokens and self.reading.is_plain
        return params.replace(structured_outputs=self.shape, skip_special_tokens=spells)


async def plan_answer(server: ServerContext, conversation: Conversation) -> AnswerPlan:
    """Renders and checks a conversation.

    Raises:
        InvalidRequestError: it cannot be honoured. Fields are named as in chat completions.
    """
    engine = server.engine
    dialect = server.dialects.of(template_source(engine, conversation))
    _check(conversation, dialect)
    token_ids = await render(engine, conversation)
    reading = _reading(engine, conversation, dialect, token_ids)
    shape = answer_shape(conversation, dialect)
    if shape is not None and reading.opened:
        problem = "the prompt ends inside reasoning, and an answer of fixed shape could not finish it; turn it off"
        raise InvalidRequestError(shape.field, str(shape.kind), problem)
    return AnswerPlan(token_ids=token_ids, shape=shape, reading=reading)


def _check(conversation: Conversation, dialect: Dialect) -> None:
    template, use = conversation.template, conversation.tool_use
    if template.continue_final_message and template.add_generation_prompt:
        problem = "cannot go with add_generation_prompt: the last message is either open or followed by a new one"
        raise InvalidRequestError("continue_final_message", True, problem)
    if use.offered and dialect.tools is None:
        problem = "this model's chat template has no place for tools; name its format with --tool-call-parser"
        raise InvalidRequestError("tools", [tool.name for tool in use.tools], problem)
    if not use.tools and use.choice not in ("auto", "none"):
        raise InvalidRequestError("tool_choice", use.choice, "there are no tools to call")
    if isinstance(use.choice, NamedTool) and use.choice.name not in {tool.name for tool in use.tools}:
        raise InvalidRequestError("tool_choice", use.choice.name, "is none of the tools")
    if use.offered and use.choice == "auto" and conversation.shape is not None:
        problem = "an answer of this shape could not call; set tool_choice to none or required, or leave out the tools"
        raise InvalidRequestError(conversation.shape.field, str(conversation.shape.kind), problem)


def _reading(engine: ServingEngine, conversation: Conversation, dialect: Dialect, token_ids: list[int]) -> Reading:
    use, options = conversation.tool_use, conversation.reasoning
    reasoning = dialect.reasoning if options.separate else NO_REASONING
    opened = ""
    if reasoning is not NO_REASONING and engine.tokenizer is not None:
        opened = reasoning.opened_by(prompt_end(engine.tokenizer, token_ids))
    return Reading(
        reasoning=reasoning,
        opened=opened,
        include_reasoning=options.include,
        family=dialect.tools if use.offered else None,
        tools=use.offered,
        parallel=use.parallel,
    )


def answer_shape(conversation: Conversation, dialect: Dialect) -> StructuredSpec | None:
    """What the whole answer must look like: calls where they are required or strict, else as the conversation says."""
    use = conversation.tool_use
    if use.choice == "none" or dialect.tools is None or not _constrains(use):
        return conversation.shape
    wanted = dialect.tools.call_format(use.tools, use.choice, parallel=use.parallel)
    return StructuredSpec(kind=StructuredKind.CALLS, calls=calls_shape(wanted), field="tools")


def _constrains(use: ToolUse) -> bool:
    return use.choice != "auto" or any(tool.strict for tool in use.tools)
