"""From a request body to sampling parameters: what the user left out comes from the model, then from OpenAI."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from octavo.engine.output import EngineInfo
from octavo.errors import InvalidRequestError
from octavo.request.params import SamplingParams
from octavo.request.pin import PinRequest
from octavo.request.repetition import RepetitionDetection
from octavo.server.conversation.pieces import AnswerOptions
from octavo.server.generation import GenerationOrder
from octavo.server.openai.generation_body import GenerationBody

SAME_NAME = (
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "seed",
    "min_tokens",
    "include_stop_str_in_output",
    "ignore_eos",
    "skip_special_tokens",
    "prompt_logprobs",
    "logits_processors",
)
"""Fields that pass as they are."""
AS_TUPLE = ("stop", "stop_token_ids", "bad_words", "allowed_token_ids", "logprob_token_ids")
"""List fields."""


def sampling_params(
    body: GenerationBody,
    model_defaults: Mapping[str, float],
    *,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None,
    detokenize: bool,
) -> SamplingParams:
    """Builds the parameters of a request.

    Args:
        model_defaults: recommended by the model's own generation config; used where the body is silent.
        max_tokens, logprobs, prompt_logprobs: as worked out by the endpoint, whose spellings differ.
        detokenize: False where the server has no tokenizer.

    Raises:
        InvalidRequestError: a value out of range, naming the field.
    """
    _check_special_spaces(body)
    _check_truncation(body)
    chosen: dict[str, Any] = {name: int(v) if name == "top_k" else v for name, v in model_defaults.items()}
    given = {name: getattr(body, name) for name in SAME_NAME}
    chosen |= {name: value for name, value in given.items() if value is not None}
    chosen |= {name: tuple(getattr(body, name)) for name in AS_TUPLE if getattr(body, name) is not None}
    chosen |= {
        "max_tokens": max_tokens,
        "logprobs": logprobs,
        "prompt_logprobs": prompt_logprobs,
        "detokenize": detokenize,
        "repetition_detection": _repetition(body),
    }
    return SamplingParams(**chosen)


def _repetition(body: GenerationBody) -> RepetitionDetection | None:
    given = body.repetition_detection
    return None if given is None else RepetitionDetection(**given.model_dump())


def _check_special_spaces(body: GenerationBody) -> None:
    """Refuses spaces between special tokens where these are shown: text is what its tokens are, and nothing between.

    Raises:
        InvalidRequestError: naming the field.
    """
    if body.spaces_between_special_tokens and body.skip_special_tokens is False:
        problem = "special tokens are shown without spaces between them; leave it out or send false"
        raise InvalidRequestError("spaces_between_special_tokens", True, problem)


def _check_truncation(body: GenerationBody) -> None:
    """Refuses a side without a length, but for the one that is the default.

    Raises:
        InvalidRequestError: naming the field.
    """
    if body.truncation_side == "right" and body.truncate_prompt_tokens is None:
        raise InvalidRequestError("truncation_side", body.truncation_side, "needs truncate_prompt_tokens")


def check_streaming(body: GenerationBody) -> None:
    """Refuses options of a stream that have no stream, or no effect.

    Raises:
        InvalidRequestError: naming the option.
    """
    interval = body.stream_interval
    if interval is not None and (interval < 1 or (interval > 1 and not body.stream)):
        raise InvalidRequestError("stream_interval", interval, "must be at least 1, and beyond that needs stream=true")
    if body.stream_options is None:
        return
    if not body.stream:
        raise InvalidRequestError("stream_options", body.stream_options.model_dump(), "needs stream=true")
    if body.stream_options.include_obfuscation:
        raise InvalidRequestError("stream_options.include_obfuscation", True, "obfuscation is not supported")


def answer_options(body: GenerationBody, params: SamplingParams) -> AnswerOptions:
    """What both endpoints are asked to show of an answer."""
    return AnswerOptions(
        num_top_logprobs=params.logprobs,
        named_logprobs=bool(params.logprob_token_ids),
        tokens_as_ids=bool(body.return_tokens_as_token_ids),
        num_prompt_logprobs=body.prompt_logprobs,
        return_token_ids=bool(body.return_token_ids),
        stream_interval=body.stream_interval or 1,
        skip_special=params.skip_special_tokens,
    )


def generation_order(
    body: GenerationBody,
    info: EngineInfo,
    *,
    request_id: str,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    tenant: str,
) -> GenerationOrder:
    """What the engine is asked for, with the body's place among other requests.

    Raises:
        InvalidRequestError: as of `check_priority`, `check_cache_salt` and `check_session`.
    """
    return GenerationOrder(
        request_id=request_id,
        prompts=prompts,
        params=params,
        tenant=tenant,
        priority=check_priority(body, info),
        cache_salt=check_cache_salt(body),
        session=check_session(body),
    )


class PlacedBody(Protocol):
    """A body that says where its request stands among others."""

    @property
    def priority(self) -> int | None: ...

    @property
    def cache_salt(self) -> str | None: ...


def check_priority(body: PlacedBody, info: EngineInfo) -> int:
    """The request's priority.

    Raises:
        InvalidRequestError: it would have no effect under the server's policy, or is no 64-bit integer.
    """
    priority = body.priority or 0
    if priority and not info.reads_priority:
        problem = f"has no effect under the policy {info.scheduling_policy!r}; start with --scheduling-policy priority"
        raise InvalidRequestError("priority", priority, problem)
    if not -(2**63) <= priority < 2**63:
        raise InvalidRequestError("priority", priority, "must be a 64-bit integer")
    return priority


def check_session(body: GenerationBody) -> PinRequest | None:
    """The request's session.

    Raises:
        InvalidRequestError: its name or lease cannot be used.
    """
    if body.session_id is None:
        if body.session_lease_s is not None:
            raise InvalidRequestError("session_lease_s", body.session_lease_s, "needs session_id")
        return None
    return pin_request(body.session_id, body.session_lease_s, lease_field="session_lease_s")


def pin_request(session_id: str, lease_s: float | None, *, lease_field: str) -> PinRequest:
    """
    Raises:
        InvalidRequestError: naming the field as this endpoint's users spell it.
    """
    try:
        return PinRequest(session_id=session_id, lease_s=lease_s)
    except InvalidRequestError as error:
        field = lease_field if error.field == "lease_s" else error.field
        raise InvalidRequestError(field, error.value, error.problem) from None


def check_cache_salt(body: PlacedBody) -> str | None:
    """The request's cache salt.

    Raises:
        InvalidRequestError: it is empty or very long.
    """
    salt = body.cache_salt
    if salt is not None and not 1 <= len(salt) <= 128:
        raise InvalidRequestError("cache_salt", salt, "must hold 1 to 128 characters")
    return salt
