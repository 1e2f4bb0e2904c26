"""Prompts as token ids: encoded, checked against the vocabulary and the context, truncated where asked."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.engine.output import EngineInfo
from octavo.errors import InvalidRequestError
from octavo.server.errors import ApiError
from octavo.server.serving_engine import ServingEngine, TextCodec

LONG_TEXT_CHARS = 20_000
"""From here on a text is encoded in a thread: it would hold up everybody's streams."""


MANY_TOKENS = 5_000
"""The same for token ids that become text."""


@dataclass(frozen=True)
class Prompt:
    """One prompt, ready for the engine. `text` is what echo gives back."""

    token_ids: list[int]
    text: str = ""


async def encode_prompt(
    engine: ServingEngine, prompt: str | list[int], *, echo: bool, at_most: int | None = None
) -> Prompt:
    """A completion's prompt.

    Args:
        at_most: tokens; a text that certainly has more is refused before it is encoded.

    Raises:
        ApiError: 400, more than `at_most`.
        InvalidRequestError: an id outside the vocabulary; an empty prompt; text without a tokenizer.
    """
    await asyncio.sleep(0)  # a prompt of many may be short, all of them together are not: others get their turn
    if isinstance(prompt, str):
        tokenizer = _tokenizer(engine, prompt)
        if at_most is not None and (least := tokenizer.least_tokens(prompt)) > at_most:
            raise _too_long(least, None, engine.info.max_model_len, "prompt", counted="at least ")
        token_ids = await encode_text(tokenizer, prompt, add_special=True)
        if not token_ids:
            raise InvalidRequestError("prompt", prompt, "must hold at least one token")
        return Prompt(token_ids, prompt)
    check_ids(prompt, engine.info.vocab_size, "prompt")
    return Prompt(prompt, await decode_ids(_tokenizer(engine, prompt), prompt) if echo else "")


async def encode_text(tokenizer: TextCodec, text: str, *, add_special: bool, parse_special: bool = False) -> list[int]:
    """Token ids of a text of any length, without holding up the event loop."""
    if len(text) < LONG_TEXT_CHARS:
        return tokenizer.encode(text, add_special=add_special, parse_special=parse_special)
    return await asyncio.to_thread(tokenizer.encode, text, add_special=add_special, parse_special=parse_special)


async def decode_ids(tokenizer: TextCodec, token_ids: list[int], *, skip_special: bool = True) -> str:
    """Text of any number of token ids, without holding up the event loop."""
    if len(token_ids) < MANY_TOKENS:
        return tokenizer.decode(token_ids, skip_special=skip_special)
    return await asyncio.to_thread(tokenizer.decode, token_ids, skip_special=skip_special)


async def spell_each(tokenizer: TextCodec, token_ids: list[int]) -> list[str]:
    """The text of each of any number of token ids, without holding up the event loop."""

    def spelled() -> list[str]:
        return [tokenizer.token_bytes(token_id).decode("utf-8", "replace") for token_id in token_ids]

    return await asyncio.to_thread(spelled) if len(token_ids) > MANY_TOKENS else spelled()


def check_ids(token_ids: Sequence[int], vocab_size: int, field: str) -> None:
    """Checks that ids exist.

    Raises:
        InvalidRequestError: naming the first that does not.
    """
    if token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocab_size):
        wrong = next(i for i in token_ids if not 0 <= i < vocab_size)
        raise InvalidRequestError(field, wrong, f"token ids run from 0 to {vocab_size - 1}")


def fit_prompt(
    token_ids: list[int],
    info: EngineInfo,
    *,
    truncate: int | None,
    max_tokens: int | None,
    field: str,
    side: str | None = None,
) -> list[int]:
    """Truncates if asked, then checks that prompt and answer fit the context.

        |<-- dropped -->|<-- kept: truncate_prompt_tokens -->|<-- answer: max_tokens, or at least 1 -->|
                        0                                  prompt                              max_model_len

    Args:
        truncate: tokens to keep; -1: as many as leave room for the answer.
        side: which end goes, `left` (as above) or `right`; None is `left`.

    Raises:
        ApiError: 400 with the numbers.
        InvalidRequestError: `truncate` cannot be honoured.
    """
    reserve = max_tokens or 1
    token_ids = _cut(token_ids, truncate, side, info.max_model_len - reserve)
    if len(token_ids) + reserve > info.max_model_len:
        raise _too_long(len(token_ids), max_tokens, info.max_model_len, field)
    return token_ids


def fit_input(
    token_ids: list[int], info: EngineInfo, *, truncate: int | None, side: str | None, field: str
) -> list[int]:
    """The same for a text of which a vector is wanted: there is no answer to leave room for.

    Raises:
        ApiError: 400 with the numbers.
        InvalidRequestError: nothing is left, or `truncate` cannot be honoured.
    """
    if side is not None and truncate is None:
        raise InvalidRequestError("truncation_side", side, "needs truncate_prompt_tokens")
    token_ids = _cut(token_ids, truncate, side, info.max_model_len)
    if not token_ids:
        raise InvalidRequestError(field, "", "must hold at least one token")
    check_input_length(len(token_ids), info, field)
    return token_ids


def check_input_length(num_tokens: int, info: EngineInfo, field: str, *, counted: str = "") -> None:
    """Checks that a text of which a vector is wanted fits the context.

    Args:
        counted: `at least `, where they are not counted exactly.

    Raises:
        ApiError: 400 with the numbers.
    """
    if num_tokens > info.max_model_len:
        message = f"{field}: this model's context holds {info.max_model_len} tokens: {counted}{num_tokens} were given; "
        fix = "shorten it, or cut it with truncate_prompt_tokens"
        raise ApiError(400, message + fix, param=field, code="context_length_exceeded")


def _cut(token_ids: list[int], truncate: int | None, side: str | None, room: int) -> list[int]:
    if truncate is None:
        return token_ids
    count = _keep(truncate, room)
    return token_ids[:count] if side == "right" else token_ids[-count:]


def _keep(truncate: int, room: int) -> int:
    if truncate != -1 and truncate < 1:
        problem = "must be -1 (as many as leave room for the answer) or at least 1"
        raise InvalidRequestError("truncate_prompt_tokens", truncate, problem)
    return max(1, room) if truncate == -1 else truncate


def _too_long(num_prompt: int, max_tokens: int | None, context: int, field: str, counted: str = "") -> ApiError:
    if num_prompt + 1 > context:
        problem = f"the prompt has {counted}{num_prompt} tokens and one must be left for the answer; shorten it"
    else:
        field = "max_tokens"
        problem = (
            f"{num_prompt} prompt tokens and max_tokens={max_tokens} make {num_prompt + (max_tokens or 0)}; "
            f"at most {context - num_prompt} are left for the answer"
        )
    message = f"{field}: this model's context holds {context} tokens: {problem}"
    return ApiError(400, message, param=field, code="context_length_exceeded")


def _tokenizer(engine: ServingEngine, prompt: object) -> TextCodec:
    if engine.tokenizer is None:
        raise InvalidRequestError("prompt", prompt, "this server runs without a tokenizer: send and expect token ids")
    return engine.tokenizer
