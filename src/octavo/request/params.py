"""Sampling parameters: one immutable, validated object per request."""

from collections.abc import Mapping
from typing import Any

import msgspec

from octavo.errors import InvalidRequestError
from octavo.request.reasoning import ReasoningSpec
from octavo.request.repetition import RepetitionDetection
from octavo.request.structured import StructuredSpec

MAX_N = 128
MAX_LOGPROBS = 1024
MAX_SEED = 2**63 - 1
MAX_BAD_WORDS = 1024
"""Each is looked for at every token."""
MAX_LOGPROB_TOKEN_IDS = 128
MAX_PROCESSOR_ARGS_BYTES = 65536
"""Of all arguments of one request's logits processors, as JSON."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the tokens of one request are chosen and when it ends.

    Names, defaults and meaning follow OpenAI's API and vLLM's extensions. Construction validates: a value that
    cannot be honoured raises :class:`InvalidRequestError` naming the field.
    """

    n: int = 1
    """Independent answers to one prompt; answer i draws with a seed derived from (seed, i)."""
    max_tokens: int | None = 16
    """Largest number of generated tokens; None: as many as the context allows."""
    min_tokens: int = 0
    """End-of-sequence and stop ids are masked until this many tokens are generated."""
    temperature: float = 1.0
    """0 is greedy (ties go to the lower token id)."""
    top_k: int = 0
    """Keep the k most probable tokens; 0 or -1 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of most probable tokens whose mass reaches top_p (after top_k)."""
    min_p: float = 0.0
    """Drop tokens less probable than min_p times the most probable one."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens seen in prompt or output."""
    presence_penalty: float = 0.0
    """Subtracted once from logits of tokens in the output."""
    frequency_penalty: float = 0.0
    """Subtracted per occurrence from logits of tokens in the output."""
    logit_bias: dict[int, float] | None = None
    """token id -> value added to its logit, in [-100, 100]."""
    allowed_token_ids: tuple[int, ...] | None = None
    """If given, only these ids can be sampled."""
    bad_words_token_ids: tuple[tuple[int, ...], ...] = ()
    """Token sequences that must not be completed. The text form `bad_words` is tokenised by the client."""
    bad_words: tuple[str, ...] = ()
    """Words that must not appear; turned into `bad_words_token_ids` where a tokenizer is at hand."""
    stop: tuple[str, ...] = ()
    """Strings that end the answer; found by the client side, never part of the text unless asked."""
    stop_token_ids: tuple[int, ...] = ()
    """Token ids that end the answer, beside the model's own end-of-sequence ids."""
    ignore_eos: bool = False
    """Generate past the model's end-of-sequence ids (stop_token_ids still stop)."""
    include_stop_str_in_output: bool = False
    seed: int | None = None
    """Key of the counter-based noise. None: the client draws one, so the engine always sees a number."""
    logprobs: int | None = None
    """Logprobs of this many most probable tokens per output position, plus the sampled one; 0: only the sampled."""
    prompt_logprobs: int | None = None
    """The same for prompt tokens. Such requests take no prefix hits: their logits must be computed."""
    logprob_token_ids: tuple[int, ...] = ()
    """With `logprobs`: logprobs of these ids at each output position, in this order, in place of the most probable."""
    repetition_detection: RepetitionDetection | None = None
    """Ends an answer that goes round in circles."""
    reasoning: ReasoningSpec | None = None
    """The model's markers of reasoning as token ids, with the budget; None: nothing depends on where it ends."""
    logits_processors: dict[str, dict[str, Any]] | None = None
    """Plug-ins that edit the logits of this request: name -> its arguments. Only those that the engine was started
    with exist."""
    skip_special_tokens: bool = True
    detokenize: bool = True
    """False: token ids only; `stop` strings are then refused."""
    structured_outputs: StructuredSpec | None = None
    """The shape that the answer must have; None: any text."""

    def __post_init__(self) -> None:
        _validate(self)

    @property
    def greedy(self) -> bool:
        """Temperatures below 1e-5 are greedy: a division by them overflows and the draw could not differ."""
        return self.temperature < 1e-5

    def replace(self, **changes: Any) -> "SamplingParams":
        """A copy with some fields changed, validated again."""
        return msgspec.structs.replace(self, **changes)


def _require(ok: bool, field: str, value: object, problem: str) -> None:
    if not ok:
        raise InvalidRequestError(field, value, problem)


def _require_range(p: SamplingParams, field: str, low: float, high: float, *, open_low: bool = False) -> None:
    value = getattr(p, field)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # A NaN compares false, an infinity lies outside; math.isfinite fails on integers beyond all floats.
    inside = is_number and (low < value if open_low else low <= value) and value <= high
    bracket = "(" if open_low else "["
    _require(inside, field, value, f"must be a number in {bracket}{low:g}, {high:g}]")


def _require_int(p: SamplingParams, field: str, low: int, high: int, *, none_ok: bool = False) -> None:
    value = getattr(p, field)
    if value is None and none_ok:
        return
    is_int = isinstance(value, int) and not isinstance(value, bool)
    _require(is_int and low <= value <= high, field, value, f"must be an integer in [{low}, {high}]")


def _require_items(p: SamplingParams, field: str, kind: type) -> None:
    """Of a text, the letters would be taken for the items, so one text alone is refused."""
    value = getattr(p, field)
    if field == "allowed_token_ids" and value is None:
        return
    good = isinstance(value, list | tuple) and all(
        isinstance(item, kind) and not isinstance(item, bool) for item in value
    )
    what = "strings" if kind is str else "token ids"
    _require(good, field, value, f"must be a tuple of {what}, such as {('end',) if kind is str else (7,)}")


_LISTS = (
    ("stop", str),
    ("bad_words", str),
    ("stop_token_ids", int),
    ("allowed_token_ids", int),
    ("logprob_token_ids", int),
)
"""Fields that hold several items, and of what type."""


def _validate(p: SamplingParams) -> None:
    _require_int(p, "n", 1, MAX_N)
    _require_int(p, "max_tokens", 1, 2**31 - 1, none_ok=True)
    _require_int(p, "min_tokens", 0, 2**31 - 1)
    _require_int(p, "top_k", -1, 2**31 - 1)
    _require_int(p, "seed", 0, MAX_SEED, none_ok=True)
    _require_int(p, "logprobs", 0, MAX_LOGPROBS, none_ok=True)
    _require_int(p, "prompt_logprobs", 0, MAX_LOGPROBS, none_ok=True)
    _require_range(p, "temperature", 0, 100)
    _require_range(p, "top_p", 0, 1, open_low=True)
    _require_range(p, "min_p", 0, 1)
    _require_range(p, "repetition_penalty", 0, 100, open_low=True)
    _require_range(p, "presence_penalty", -2, 2)
    _require_range(p, "frequency_penalty", -2, 2)
    if p.max_tokens is not None:
        _require(p.min_tokens <= p.max_tokens, "min_tokens", p.min_tokens, f"must be <= max_tokens={p.max_tokens}")
    for field, kind in _LISTS:
        _require_items(p, field, kind)
    _validate_logit_bias(p.logit_bias)
    _validate_logprob_token_ids(p)
    _validate_processors(p.logits_processors)
    _require(
        p.allowed_token_ids is None or len(p.allowed_token_ids) > 0,
        "allowed_token_ids",
        p.allowed_token_ids,
        "must name at least one token id, or be left out",
    )
    _require(all(p.bad_words_token_ids), "bad_words", p.bad_words_token_ids, "must not hold an empty word")
    _require(len(p.bad_words) <= MAX_BAD_WORDS, "bad_words", len(p.bad_words), f"must be at most {MAX_BAD_WORDS} words")
    _require(all(p.bad_words), "bad_words", p.bad_words, "must not hold an empty word")
    _require(all(p.stop), "stop", p.stop, "must not hold an empty string")
    _require(p.detokenize or not p.stop, "stop", p.stop, "needs detokenize=True; use stop_token_ids instead")
    _require(
        p.structured_outputs is None or isinstance(p.structured_outputs, StructuredSpec),
        "structured_outputs",
        p.structured_outputs,
        "must be a StructuredSpec, such as StructuredSpec(kind=StructuredKind.JSON_OBJECT)",
    )


def _validate_logit_bias(bias: Mapping[int, float] | None) -> None:
    _require(bias is None or isinstance(bias, Mapping), "logit_bias", bias, "must map token ids to numbers")
    for token_id, value in (bias or {}).items():
        _require(type(token_id) is int, "logit_bias", {token_id: value}, "each key must be a token id, an integer")
        _require(
            type(value) in (int, float) and -100 <= value <= 100,
            "logit_bias",
            {token_id: value},
            "each value must be a number in [-100, 100]",
        )


def _validate_logprob_token_ids(p: SamplingParams) -> None:
    field, ids = "logprob_token_ids", p.logprob_token_ids
    if not ids:
        return
    _require(len(ids) <= MAX_LOGPROB_TOKEN_IDS, field, len(ids), f"must be at most {MAX_LOGPROB_TOKEN_IDS} ids")
    _require(len(set(ids)) == len(ids), field, ids, "must not name an id twice")
    _require(p.logprobs is not None, field, ids, "needs logprobs, which they are returned in")


def _validate_processors(processors: Mapping[str, Mapping[str, Any]] | None) -> None:
    field = "logits_processors"
    _require(processors is None or isinstance(processors, Mapping), field, processors, "must map names to arguments")
    for name, args in (processors or {}).items():
        _require(isinstance(name, str), field, name, "each key must be the name of a processor")
        _require(isinstance(args, Mapping), f"{field}.{name}", args, "must map argument names to values, {} for none")
        _require(all(isinstance(key, str) for key in args), f"{field}.{name}", args, "each argument must have a name")
    try:
        size = len(msgspec.json.encode(processors))
    except TypeError as error:
        raise InvalidRequestError(field, processors, f"arguments must be JSON values: {error}") from None
    _require(size <= MAX_PROCESSOR_ARGS_BYTES, field, size, f"must be at most {MAX_PROCESSOR_ARGS_BYTES} bytes of JSON")


def validate_against_vocabulary(params: SamplingParams, vocab_size: int, max_logprobs: int) -> None:
    """Checks what only a loaded model can: every token id named exists, and logprob counts are allowed.

    Raises:
        InvalidRequestError: naming the field and the id.
    """
    named = {
        "logit_bias": params.logit_bias or (),
        "allowed_token_ids": params.allowed_token_ids or (),
        "stop_token_ids": params.stop_token_ids,
        "bad_words": [i for word in params.bad_words_token_ids for i in word],
        "logprob_token_ids": params.logprob_token_ids,
        "reasoning": () if params.reasoning is None else params.reasoning.token_ids(),
    }
    for field in ("allowed_token_ids", "stop_token_ids"):
        _require(len(named[field]) <= vocab_size, field, len(named[field]), f"there are {vocab_size} token ids in all")
    for field, ids in named.items():
        for token_id in ids:
            _require(0 <= token_id < vocab_size, field, token_id, f"token ids run from 0 to {vocab_size - 1}")
    for field, count in (("logprobs", params.logprobs), ("prompt_logprobs", params.prompt_logprobs)):
        _require(count is None or count <= max_logprobs, field, count, f"this server allows at most {max_logprobs}")
