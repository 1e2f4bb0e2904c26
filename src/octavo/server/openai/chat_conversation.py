"""From a chat completion's body to a conversation."""

from octavo.config import ServerConfig
from octavo.errors import InvalidRequestError
from octavo.server.conversation.conversation import Conversation, ReasoningOptions, TemplateOptions
from octavo.server.openai.answer_shape import answer_shape
from octavo.server.openai.chat_body import ChatBody
from octavo.server.openai.tool_body import tool_use


def conversation_of(body: ChatBody, config: ServerConfig) -> Conversation:
    """The conversation that a body describes.

    Raises:
        InvalidRequestError: one of its fields cannot be honoured.
    """
    return Conversation(
        messages=body.plain_messages(),
        tool_use=tool_use(body.tools, body.tool_choice, body.parallel_tool_calls),
        shape=answer_shape(body),
        reasoning=ReasoningOptions(
            include=body.include_reasoning is not False,
            effort=body.reasoning_effort,
            budget=body.thinking_token_budget,
        ),
        template=_template_options(body, config),
    )


def _template_options(body: ChatBody, config: ServerConfig) -> TemplateOptions:
    if body.chat_template is not None and not config.trust_request_chat_template:
        problem = "requests may not bring chat templates to this server; it takes --trust-request-chat-template"
        raise InvalidRequestError("chat_template", body.chat_template, problem)
    continues = bool(body.continue_final_message)
    given = body.add_generation_prompt
    return TemplateOptions(
        add_generation_prompt=not continues if given is None else given,
        continue_final_message=continues,
        source=body.chat_template,
        variables=body.chat_template_kwargs or {},
        documents=body.documents,
    )
