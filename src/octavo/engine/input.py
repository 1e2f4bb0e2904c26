"""From a user's prompt and parameters to the requests that the engine core takes."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from octavo.decoding.seeds import derive_seed
from octavo.engine.logits_processors import check_arguments, load_processors
from octavo.engine.output import EngineInfo
from octavo.errors import InvalidRequestError
from octavo.request.params import MAX_SEED, SamplingParams, validate_against_vocabulary
from octavo.request.pin import PinRequest
from octavo.request.pooling import NOTHING_SAMPLED, PoolingParams
from octavo.request.request import GenerateRequest
from octavo.text.tokenizer import Tokenizer

Prompt = str | Sequence[int]
Message = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """What a request carries beside prompt and sampling parameters."""

    tenant: str = ""
    priority: int = 0
    cache_salt: str | None = None
    pin: PinRequest | None = None
    """Its session; of several choices the first one's."""
    group: str = ""
    """Id of the API request of which the prompt is a part; empty: its own."""
    alias: str = ""
    """A name that the client gave that."""


@dataclass(frozen=True)
class PreparedRequest:
    """A validated request: its prompt as ids and one core request per choice."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    choices: tuple[GenerateRequest, ...]


class InputProcessor:
    """Validates and completes requests: everything that can be refused without the engine core is refused here."""

    def __init__(self, info: EngineInfo, tokenizer: Tokenizer | None, default_seed: int | None) -> None:
        self._info = info
        self._tokenizer = tokenizer
        self._default_seed = default_seed
        self._processors = load_processors(info.logits_processors, info.vocab_size)

    def prepare(
        self, request_id: str, prompt: str | Sequence[int], params: SamplingParams, options: RequestOptions
    ) -> PreparedRequest:
        """Builds the core requests of one prompt.

        Raises:
            InvalidRequestError: naming the field, the value and what would be allowed.
        """
        if params.structured_outputs is not None and self._tokenizer is None:
            spec = params.structured_outputs
            raise InvalidRequestError(spec.field, spec.kind, "no tokenizer is loaded (skip_tokenizer_init)")
        prompt_token_ids = self.encode(prompt)
        params = self._complete(params, len(prompt_token_ids))
        eos_token_ids = () if params.ignore_eos else self._info.eos_token_ids
        _check_allowed(params, eos_token_ids)
        shared_ids = list(prompt_token_ids)  # by all choices: nobody writes to it
        choices = tuple(
            GenerateRequest(
                request_id=request_id if params.n == 1 else f"{request_id}-{index}",
                prompt_token_ids=shared_ids,
                params=_choice_params(params, index),
                eos_token_ids=eos_token_ids,
                tenant=options.tenant,
                priority=options.priority,
                cache_salt=options.cache_salt,
                pin=options.pin if index == 0 else None,
                group=options.group or request_id,
                alias=options.alias,
            )
            for index in range(params.n)
        )
        return PreparedRequest(request_id, prompt_token_ids, params, choices)

    def prepare_pooled(
        self, request_id: str, prompt: str | Sequence[int], pooling: PoolingParams, options: RequestOptions
    ) -> PreparedRequest:
        """Builds the core request of a prompt of which a vector is wanted.

        Raises:
            InvalidRequestError: naming the field, the value and what would be allowed.
        """
        prompt_token_ids = self.encode(prompt)
        self._check_pooled(len(prompt_token_ids), pooling)
        request = GenerateRequest(
            request_id=request_id,
            prompt_token_ids=list(prompt_token_ids),
            params=NOTHING_SAMPLED,
            tenant=options.tenant,
            priority=options.priority,
            cache_salt=options.cache_salt,
            group=options.group or request_id,
            alias=options.alias,
            pooling=pooling,
        )
        return PreparedRequest(request_id, prompt_token_ids, NOTHING_SAMPLED, (request,))

    def _check_pooled(self, num_prompt_tokens: int, pooling: PoolingParams) -> None:
        context, size = self._info.max_model_len, self._info.hidden_size
        if num_prompt_tokens == 0:
            raise InvalidRequestError("prompt", "", "must hold at least one token")
        if num_prompt_tokens > context:
            problem = f"the context holds {context} tokens; shorten it"
            raise InvalidRequestError("prompt", f"{num_prompt_tokens} tokens", problem)
        if pooling.dimensions is not None and pooling.dimensions > size:
            raise InvalidRequestError("dimensions", pooling.dimensions, f"the model's vectors have {size} numbers")

    def encode(self, prompt: str | Sequence[int]) -> tuple[int, ...]:
        """Token ids of a prompt; ids given by the caller are checked, text is tokenised (no special tokens in it).

        Raises:
            InvalidRequestError: an unknown id, text without a tokenizer, or neither text nor ids.
        """
        if not isinstance(prompt, str):
            return self._check_ids(prompt)
        if self._tokenizer is None:
            raise InvalidRequestError("prompt", prompt, "no tokenizer is loaded (skip_tokenizer_init); send token ids")
        return tuple(self._tokenizer.encode(prompt, add_special=True, parse_special=False))

    def _check_ids(self, ids: Sequence[int]) -> tuple[int, ...]:
        if isinstance(ids, bytes) or not isinstance(ids, Iterable):
            raise InvalidRequestError("prompt", ids, "must be a text or a sequence of token ids")
        for token_id in ids:
            if not _is_integer(token_id) or not 0 <= token_id < self._info.vocab_size:
                raise InvalidRequestError("prompt", token_id, f"token ids run from 0 to {self._info.vocab_size - 1}")
        return tuple(int(token_id) for token_id in ids)

    def _complete(self, params: SamplingParams, num_prompt_tokens: int) -> SamplingParams:
        room = self._info.max_model_len - num_prompt_tokens
        if num_prompt_tokens == 0:
            raise InvalidRequestError("prompt", "", "must hold at least one token")
        if room < 1:
            raise InvalidRequestError(
                "prompt",
                f"{num_prompt_tokens} tokens",
                f"the context holds {self._info.max_model_len} tokens and one must be left for the answer",
            )
        if params.max_tokens is not None and params.max_tokens > room:
            raise InvalidRequestError(
                "max_tokens",
                params.max_tokens,
                f"the context holds {self._info.max_model_len} tokens and the prompt takes {num_prompt_tokens}; "
                f"at most {room} are left",
            )
        if params.min_tokens > room:
            raise InvalidRequestError("min_tokens", params.min_tokens, f"at most {room} tokens are left for the answer")
        seed = params.seed if params.seed is not None else self._default_seed
        completed = params.replace(
            max_tokens=params.max_tokens or room,
            seed=secrets.randbelow(MAX_SEED) if seed is None else seed,
            bad_words_token_ids=params.bad_words_token_ids + self._tokenise_bad_words(params.bad_words),
        )
        validate_against_vocabulary(completed, self._info.vocab_size, self._info.max_logprobs)
        check_arguments(completed, self._processors)
        return completed

    def _tokenise_bad_words(self, words: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        """Each word as it is spelled at the start of a text and after a space; blanks alone as they are."""
        if words and self._tokenizer is None:
            raise InvalidRequestError("bad_words", words, "no tokenizer is loaded; use bad_words_token_ids")
        spellings = dict.fromkeys(
            tuple(self._tokenizer.encode(spelling, add_special=False))
            for word in words
            for spelling in ((word,) if word.isspace() else (word.lstrip(), " " + word.lstrip()))
            if self._tokenizer is not None
        )
        return tuple(spellings)


def _is_integer(value: object) -> bool:
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def _check_allowed(params: SamplingParams, eos_token_ids: Sequence[int]) -> None:
    """Refuses masks that leave nothing to draw at the first position.

    Raises:
        InvalidRequestError: naming allowed_token_ids.
    """
    if params.allowed_token_ids is None:
        return
    masked = {word[0] for word in params.bad_words_token_ids if len(word) == 1}
    if params.min_tokens > 0:
        masked.update(eos_token_ids, params.stop_token_ids)
    if masked.issuperset(params.allowed_token_ids):
        problem = "bad_words, or min_tokens with the ids that end an answer, rule all of them out"
        raise InvalidRequestError("allowed_token_ids", params.allowed_token_ids, problem)


def _choice_params(params: SamplingParams, index: int) -> SamplingParams:
    """Parameters of choice `index`: choice 0 draws like a request with n = 1, so n changes nothing about it."""
    if params.n == 1:
        return params
    seed = params.seed if index == 0 or params.seed is None else derive_seed(params.seed, index)
    return params.replace(n=1, seed=seed, prompt_logprobs=params.prompt_logprobs if index == 0 else None)
