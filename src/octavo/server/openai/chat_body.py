"""The body of POST /v1/chat/completions."""

from typing import Annotated, Any

from octavo.errors import InvalidRequestError
from octavo.server.fields import Harmless, Honoured, Refused
from octavo.server.json_object import JsonObject
from octavo.server.openai.generation_body import GenerationBody
from octavo.server.openai.message import Messages
from octavo.server.openai.tool_body import ChoiceField, FunctionTool


class ChatBody(GenerationBody):
    """A chat completion request."""

    messages: Annotated[Messages, Honoured("texts; a history may hold tool calls and results, and reasoning")]
    max_completion_tokens: Annotated[int | None, Honoured("newer name of `max_tokens`; wins if both are given")] = None
    logprobs: Annotated[bool | None, Honoured("logprobs of the answer's tokens")] = None
    top_logprobs: Annotated[int | None, Honoured("with `logprobs`; up to `--max-logprobs`")] = None
    tools: Annotated[
        list[FunctionTool] | None, Honoured("functions; the model's chat template must have a place for them")
    ] = None
    tool_choice: Annotated[
        ChoiceField, Honoured("`none`, `auto` (default), `required`, or one function; see docs/chat.md")
    ] = None
    parallel_tool_calls: Annotated[bool | None, Honoured("false: one call at most")] = None
    reasoning_effort: Annotated[
        str | None,
        Honoured("for templates that read it; `none` turns thinking off where the template has a switch"),
    ] = None
    include_reasoning: Annotated[bool | None, Honoured("false: reasoning is left out of the answer")] = None
    chat_template: Annotated[
        str | None, Honoured("in place of the model's; only with `--trust-request-chat-template`")
    ] = None
    chat_template_kwargs: Annotated[JsonObject | None, Honoured("variables for the chat template")] = None
    add_generation_prompt: Annotated[bool | None, Honoured("true by default, false with `continue_final_message`")] = (
        None
    )
    continue_final_message: Annotated[
        bool | None, Honoured("the answer goes on with the last message, from the end of its text")
    ] = None
    echo: Annotated[
        bool | None, Honoured("with `continue_final_message`: the text of that message stands before the answer")
    ] = None
    return_prompt_text: Annotated[bool | None, Honoured("`prompt_text`, the rendered prompt, beside the choices")] = (
        None
    )
    documents: Annotated[list[JsonObject] | None, Honoured("for templates that read them")] = None

    metadata: Annotated[dict[str, Any] | None, Harmless("not stored")] = None
    safety_identifier: Annotated[str | None, Harmless("not stored")] = None
    prompt_cache_key: Annotated[str | None, Harmless("the prefix cache needs no hint")] = None
    prompt_cache_retention: Annotated[str | None, Harmless("an upper bound; blocks leave earlier if need be")] = None

    add_special_tokens: Annotated[
        Any, Refused("the chat template writes them, and the beginning-of-text token stands there once", (False,))
    ] = None
    service_tier: Annotated[Any, Refused("there is one service tier", neutral=("auto", "default"))] = None
    store: Annotated[Any, Refused("nothing is stored", neutral=(False,))] = None
    functions: Annotated[Any, Refused("it is the older form of tools; use `tools`", neutral=([],))] = None
    function_call: Annotated[
        Any, Refused("it is the older form of tool_choice; use `tools` and `tool_choice`", neutral=("none", "auto"))
    ] = None
    modalities: Annotated[Any, Refused("the model answers in text only", neutral=(["text"],))] = None
    audio: Annotated[Any, Refused("the model answers in text only")] = None
    moderation: Annotated[Any, Refused("there is no moderation")] = None
    prediction: Annotated[Any, Refused("predicted outputs are not supported")] = None
    prompt_cache_options: Annotated[Any, Refused("use session_id to have a prefix held")] = None
    verbosity: Annotated[Any, Refused("verbosity cannot be set; ask for it in the prompt")] = None
    web_search_options: Annotated[Any, Refused("the server does not search the web")] = None

    def plain_messages(self) -> list[dict[str, Any]]:
        """The conversation as templates read it.

        Raises:
            InvalidRequestError: there is no message, or one lacks content.
        """
        if not self.messages:
            raise InvalidRequestError("messages", [], "must hold at least one message")
        plain = []
        for index, message in enumerate(self.messages):
            try:
                plain.append(message.plain())
            except ValueError as problem:
                raise InvalidRequestError(f"messages[{index}].content", None, str(problem)) from None
        return plain
