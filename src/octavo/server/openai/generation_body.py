"""What completions and chat completions have in common: sampling, ending, streaming."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictStr, WithJsonSchema

from octavo.server.fields import Harmless, Honoured, Refused, RequestBody, StrictModel
from octavo.server.openai.response_format import ResponseFormat, StructuredOutputs

MAX_STOP_STRINGS = 64
"""Every token is searched for every stop string, so their number is bounded."""
MAX_STOP_CHARS = 1024
MAX_BAD_WORD_CHARS = 1024


class StreamOptions(StrictModel):
    """What a stream carries beside the answer."""

    include_usage: bool | None = None
    """A last chunk with the usage of the whole request."""
    continuous_usage_stats: bool | None = None
    """Usage so far in every chunk."""
    include_obfuscation: bool | None = None
    """Padding against traffic analysis: off is what happens, so only true is refused."""


def _stop_list(value: Any) -> Any:
    """One stop string or a list of them, as a list."""
    if isinstance(value, str):
        value = [value]
    listed = isinstance(value, list) and all(isinstance(item, str) for item in value)
    if value is not None and not listed:
        raise ValueError("must be a string or a list of strings")
    if value is not None and len(value) > MAX_STOP_STRINGS:
        raise ValueError(f"must hold at most {MAX_STOP_STRINGS} strings")
    if value is not None and any(len(item) > MAX_STOP_CHARS for item in value):
        raise ValueError(f"each string must hold at most {MAX_STOP_CHARS} characters")
    return value


StopList = Annotated[
    list[StrictStr] | None,
    BeforeValidator(_stop_list),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}]}),
]


BadWords = list[Annotated[str, Field(max_length=MAX_BAD_WORD_CHARS)]] | None


class RepetitionBody(StrictModel):
    """When an answer that repeats itself is ended; see `RepetitionDetection`."""

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0


TEXT_ONLY = "the model takes text only"


class GenerationBody(RequestBody):
    """Fields of both generating endpoints. Ranges are checked by SamplingParams, types here."""

    model: Annotated[str | None, Honoured("one of /v1/models, 404 otherwise; absent: the model served")] = None
    stream: Annotated[bool | None, Honoured("server-sent events, `[DONE]` last")] = None
    stream_options: Annotated[
        StreamOptions | None, Honoured("with `stream`; `include_usage`, `continuous_usage_stats`")
    ] = None
    stream_interval: Annotated[
        int | None, Honoured("with `stream`: tokens per chunk, at least; the first one never waits")
    ] = None
    n: Annotated[int | None, Honoured("answers per prompt, 1 to 128")] = None
    max_tokens: Annotated[int | None, Honoured("completions: 16 if absent, 0 allowed; chat: all that fits")] = None
    temperature: Annotated[float | None, Honoured("0 (greedy) to 100; the model's own default if absent")] = None
    top_p: Annotated[float | None, Honoured("in (0, 1]")] = None
    frequency_penalty: Annotated[float | None, Honoured("in [-2, 2], over output tokens")] = None
    presence_penalty: Annotated[float | None, Honoured("in [-2, 2], over output tokens")] = None
    logit_bias: Annotated[dict[int, float] | None, Honoured("token id to [-100, 100]")] = None
    seed: Annotated[int | None, Honoured("0 to 2^63 - 1; the same seed gives the same tokens, in any company")] = None
    stop: Annotated[StopList, Honoured(f"up to {MAX_STOP_STRINGS} strings")] = None
    user: Annotated[str | None, Harmless("not stored")] = None

    top_k: Annotated[int | None, Honoured("0 or -1: off")] = None
    min_p: Annotated[float | None, Honoured("in [0, 1]")] = None
    repetition_penalty: Annotated[float | None, Honoured("over prompt and output tokens")] = None
    min_tokens: Annotated[int | None, Honoured("no end before this many tokens")] = None
    stop_token_ids: Annotated[list[int] | None, Honoured("beside the model's own end ids")] = None
    include_stop_str_in_output: Annotated[bool | None, Honoured()] = None
    ignore_eos: Annotated[bool | None, Honoured("go on past the model's end ids")] = None
    skip_special_tokens: Annotated[bool | None, Honoured("true by default")] = None
    bad_words: Annotated[BadWords, Honoured("words that must not appear")] = None
    allowed_token_ids: Annotated[list[int] | None, Honoured("only these can be sampled")] = None
    logprob_token_ids: Annotated[
        list[int] | None, Honoured("with logprobs: those of these ids (up to 128) in place of the most probable ones")
    ] = None
    return_tokens_as_token_ids: Annotated[
        bool | None, Honoured("logprobs spell tokens as `token_id:7`, which no two tokens share")
    ] = None
    repetition_detection: Annotated[
        RepetitionBody | None,
        Honoured("`min_count` copies of 1 to `max_pattern_size` tokens at the end: finish reason `repetition`"),
    ] = None
    thinking_token_budget: Annotated[
        int | None, Honoured("most tokens of reasoning, then its end is written for the model; -1: any number")
    ] = None
    logits_processors: Annotated[
        dict[str, dict[str, Any]] | None, Honoured("plug-ins of `--logits-processors` and their arguments, by name")
    ] = None
    spaces_between_special_tokens: Annotated[
        bool | None, Honoured("special tokens stand without added spaces: true is refused where they are shown")
    ] = None
    prompt_logprobs: Annotated[int | None, Honoured("logprobs of the prompt's tokens, this many per position")] = None
    truncate_prompt_tokens: Annotated[
        int | None, Honoured("keep the last k prompt tokens; -1: as many as leave room for the answer")
    ] = None
    truncation_side: Annotated[
        Literal["left", "right"] | None, Honoured("with `truncate_prompt_tokens`, which end goes; `left` if absent")
    ] = None
    return_token_ids: Annotated[bool | None, Honoured("`token_ids` and `prompt_token_ids` in the choices")] = None
    cache_salt: Annotated[str | None, Honoured("prefixes are shared only with requests of the same salt")] = None
    session_id: Annotated[
        str | None, Honoured("prompt and answer stay in the KV memory for the next turn; see Sessions")
    ] = None
    session_lease_s: Annotated[
        float | None, Honoured("with `session_id`: seconds from its last use for which it lives; 600 at first")
    ] = None
    priority: Annotated[
        int | None, Honoured("lower first; needs a policy that reads it, such as `priority`; else only 0")
    ] = None
    use_beam_search: Annotated[Any, Refused("there is no beam search; ask for n answers", neutral=(False,))] = None
    length_penalty: Annotated[Any, Refused("has a meaning only in beam search", neutral=(1, 1.0))] = None
    request_id: Annotated[Any, Refused("send it as the header X-Request-Id")] = None
    kv_transfer_params: Annotated[Any, Refused("there is no transfer of KV blocks", neutral=({},))] = None
    ec_transfer_params: Annotated[Any, Refused("there is no transfer of encoder outputs", neutral=({},))] = None
    mm_processor_kwargs: Annotated[Any, Refused(TEXT_ONLY, neutral=({},))] = None
    media_io_kwargs: Annotated[Any, Refused(TEXT_ONLY, neutral=({},))] = None
    mm_payload: Annotated[Any, Refused(TEXT_ONLY, neutral=({},))] = None
    routed_experts_prompt_start: Annotated[Any, Refused("routing to experts is not returned")] = None
    return_token_offsets: Annotated[
        Any, Refused("use logprobs, whose text_offset says where tokens stand", neutral=(False,))
    ] = None
    watermarking: Annotated[Any, Refused("answers are not watermarked", neutral=(False,))] = None
    vllm_xargs: Annotated[Any, Refused("name the plug-in: logits_processors={NAME: {...}}", neutral=({},))] = None
    response_format: Annotated[
        ResponseFormat | None, Honoured("`text`, `json_object`, or `json_schema` with `strict`")
    ] = None
    structured_outputs: Annotated[
        StructuredOutputs | None,
        Honoured("one of `json`, `regex`, `choice`, `grammar`, `json_object`; see docs/structured_output.md"),
    ] = None
    guided_json: Annotated[dict[str, Any] | str | None, Honoured("older name of `structured_outputs.json`")] = None
    guided_regex: Annotated[str | None, Honoured("older name of `structured_outputs.regex`")] = None
    guided_choice: Annotated[list[str] | None, Honoured("older name of `structured_outputs.choice`")] = None
    guided_grammar: Annotated[str | None, Honoured("older name of `structured_outputs.grammar`")] = None
    guided_decoding_backend: Annotated[Any, Refused("there is one backend")] = None
    guided_whitespace_pattern: Annotated[Any, Refused("use structured_outputs.disable_any_whitespace")] = None
