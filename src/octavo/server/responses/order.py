"""From the body of a request to what is asked of the engine."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from octavo.errors import InvalidRequestError
from octavo.request.params import SamplingParams
from octavo.server.context import ServerContext
from octavo.server.conversation.answer import Answer, AnswerOrder
from octavo.server.conversation.conversation import Conversation, ReasoningOptions, TemplateOptions
from octavo.server.conversation.pieces import AnswerOptions
from octavo.server.conversation.plan import AnswerPlan, plan_answer
from octavo.server.errors import ApiError
from octavo.server.openai.message import MAX_MESSAGES
from octavo.server.openai.sampling import generation_order, sampling_params
from octavo.server.prompts import Prompt, fit_prompt
from octavo.server.responses.history import Message, messages_of
from octavo.server.responses.items import AnyItem, MessageItem
from octavo.server.responses.response_body import InputTokensBody, PromptBody, ResponseBody
from octavo.server.responses.stored import StoredResponse
from octavo.server.responses.tools import NamedFunction, shape_of, tool_use_of

SPELLINGS = {
    "prompt": "input",
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "logprobs": "top_logprobs",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}
"""Names of fields in errors -> how users of this endpoint know them."""


@dataclass(frozen=True, kw_only=True)
class ResponseOrder:
    """What becomes of a request."""

    answer: Answer
    stores: bool
    """It is to be kept."""
    context: list[AnyItem]
    """All items before the response's own: those of earlier responses, and those of the input."""


async def order_response(
    server: ServerContext,
    body: ResponseBody,
    previous: StoredResponse | None,
    *,
    arrival: float,
    tenant: str,
    stores: bool,
) -> ResponseOrder:
    """
    Args:
        previous: what it goes on from.
        stores: what `check_store` says.

    Raises:
        InvalidRequestError, ApiError: the request cannot be honoured; see SPELLINGS for its fields.
    """
    context = _context(body, previous)
    generation_body = body.generation_body()
    params = sampling_params(
        generation_body,
        server.engine.info.sampling_defaults,
        max_tokens=body.max_output_tokens,
        logprobs=body.num_logprobs(),
        prompt_logprobs=None,
        detokenize=True,
    )
    plan = await _fitting_plan(
        server,
        _conversation(body, messages_of(context, body.instructions), budget=body.thinking_token_budget),
        truncates=body.truncation == "auto",
        reserve=params.max_tokens or 1,
    )
    token_ids = fit_prompt(
        plan.token_ids, server.engine.info, truncate=None, max_tokens=params.max_tokens, field="input"
    )
    params = plan.complete(params)
    prompt = Prompt(token_ids)
    generation = generation_order(
        generation_body,
        server.engine.info,
        request_id=f"resp_{uuid.uuid4().hex}",
        prompts=[token_ids],
        params=params,
        tenant=tenant,
    )
    options = AnswerOptions(
        num_top_logprobs=params.logprobs, skip_special=params.skip_special_tokens, reading=plan.reading
    )
    order = AnswerOrder(generation=generation, prompts=[prompt], options=options, arrival=arrival)
    return ResponseOrder(answer=Answer(server, order), context=context, stores=stores)


def _context(body: PromptBody, previous: StoredResponse | None) -> list[AnyItem]:
    """
    Raises:
        InvalidRequestError: a chain has grown longer than a conversation may be that is sent whole, or ends in a call
            that was cut off.
    """
    before = [] if previous is None else previous.items()
    given = _input_items(body)
    if len(before) + len(given) > MAX_MESSAGES:
        problem = f"with the items of earlier responses there are {len(before) + len(given)}; at most {MAX_MESSAGES}"
        raise InvalidRequestError("input", len(given), problem)
    return [*before, *given]


def _input_items(body: PromptBody) -> list[AnyItem]:
    if isinstance(body.input, str):
        return [MessageItem(role="user", content=body.input)]
    return list(body.input)


async def count_input(server: ServerContext, body: InputTokensBody, previous: StoredResponse | None) -> int:
    """Tokens of the prompt that such a request would have.

    Raises:
        InvalidRequestError: it cannot be honoured.
    """
    body.check_input()
    messages = messages_of(_context(body, previous), body.instructions)
    conversation = _conversation(body, messages, budget=None)
    plan = await _fitting_plan(server, conversation, truncates=body.truncation == "auto", reserve=1)
    return len(plan.token_ids)


def _conversation(body: PromptBody, messages: Sequence[Message], *, budget: int | None) -> Conversation:
    """
    Args:
        budget: of tokens of reasoning.
    """
    effort = None if body.reasoning is None else body.reasoning.effort
    return Conversation(
        messages=messages,
        tool_use=tool_use_of(body.tools or (), body.tool_choice, body.parallel_tool_calls),
        shape=shape_of(body.text),
        reasoning=ReasoningOptions(effort=effort, budget=budget),
        template=TemplateOptions(variables=body.chat_template_kwargs or {}),
    )


async def _fitting_plan(
    server: ServerContext, conversation: Conversation, *, truncates: bool, reserve: int
) -> AnswerPlan:
    """The plan of a conversation. Where it `truncates` the oldest turns are left out, as few as will do for `reserve`
    tokens of an answer to fit behind the prompt; if nothing will do, all but the last."""
    messages = list(conversation.messages)
    begins = turn_begins(messages) if truncates else []
    longest = server.engine.info.max_model_len - reserve
    least, most = 0, len(begins)  # so many turns are left out
    while least < most:
        middle = (least + most) // 2
        plan = await plan_answer(server, replace(conversation, messages=_without(messages, begins, middle)))
        if len(plan.token_ids) <= longest:
            most = middle
        else:
            least = middle + 1
    return await plan_answer(server, replace(conversation, messages=_without(messages, begins, least)))


def turn_begins(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Where a conversation may begin once older turns are left out: at any later message of a user, so that no result
    of a call loses its call."""
    users = [index for index, message in enumerate(messages) if message["role"] == "user"]
    return users[1:]


def _without(messages: Sequence[Mapping[str, Any]], begins: Sequence[int], num_turns: int) -> list[Mapping[str, Any]]:
    """The messages without the oldest turns; what a system says at the front stays."""
    if num_turns == 0:
        return list(messages)
    front = next((i for i, message in enumerate(messages) if message["role"] != "system"), len(messages))
    return [*messages[:front], *messages[begins[num_turns - 1] :]]


def previous_not_found(response_id: str) -> ApiError:
    """400: there is nothing to go on from."""
    message = f"previous_response_id: there is no response {response_id[:100]!r}: it was not stored, or is kept no more"
    return ApiError(400, message, param="previous_response_id", code="previous_response_not_found")


def echoed(body: ResponseBody, params: SamplingParams) -> dict[str, Any]:
    """What a response repeats of its request."""
    text = body.text.model_dump(by_alias=True, exclude_none=True) if body.text is not None else {}
    return {
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": None if body.reasoning is None else body.reasoning.effort, "summary": None},
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "temperature": params.temperature,
        "text": {"format": {"type": "text"}, "verbosity": "medium", **text},
        "tool_choice": _choice(body),
        "tools": [tool.echo() for tool in body.tools or ()],
        "top_logprobs": body.num_logprobs() or 0,
        "top_p": params.top_p,
        "truncation": body.truncation or "disabled",
        "user": body.user,
    }


def _choice(body: PromptBody) -> Any:
    return body.tool_choice.model_dump() if isinstance(body.tool_choice, NamedFunction) else body.tool_choice or "auto"


def check_store(body: ResponseBody, *, keeps: bool) -> bool:
    """Whether the response is to be kept.

    Raises:
        InvalidRequestError: nothing is kept here, and the request relies on it.
    """
    if keeps:
        return body.store is not False
    problem = "this server keeps no responses (--response-store-size 0)"
    if body.store:
        raise InvalidRequestError("store", True, problem)
    if body.previous_response_id is not None:
        raise InvalidRequestError("previous_response_id", body.previous_response_id, problem)
    return False
