"""The body of POST /v1/responses."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from octavo.errors import InvalidRequestError
from octavo.server.fields import Harmless, Honoured, Refused, RequestBody, StrictModel
from octavo.server.json_object import JsonObject
from octavo.server.openai.generation_body import BadWords, GenerationBody, RepetitionBody, StopList
from octavo.server.openai.message import MAX_MESSAGES
from octavo.server.responses.items import Item
from octavo.server.responses.tools import AnyTool, TextOptions, ToolChoiceField

LOGPROBS = "message.output_text.logprobs"
HOSTED_OUTPUT = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
"""Parts of items that do not occur here, so that asking for them changes nothing."""


def _is_text(value: Any) -> str:
    return "[text]" if isinstance(value, str) else "[items]"


Items = Annotated[list[Item], Field(max_length=MAX_MESSAGES)]
Input = Annotated[Annotated[str, Tag("[text]")] | Annotated[Items, Tag("[items]")], Discriminator(_is_text)]


class StreamOptions(StrictModel):
    """What a stream carries beside its events."""

    include_obfuscation: Literal[False] | None = None
    """Padding against traffic analysis is not offered."""


class ReasoningField(StrictModel):
    """How the model is to think."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """Passed to the chat template as `reasoning_effort`."""
    summary: Literal["auto"] | None = None
    """The reasoning itself is given, so there is nothing that `auto` could choose."""
    generate_summary: Literal["auto"] | None = None
    """Older name of `summary`."""
    context: Literal["auto"] | None = None
    """Whether a template shows earlier reasoning is the template's choice."""
    mode: Literal["standard"] | None = None


class PromptBody(RequestBody):
    """What makes up a prompt."""

    model: Annotated[str | None, Honoured("one of /v1/models, 404 otherwise; absent: the model served")] = None
    input: Annotated[Input, Honoured("a text, or items: messages, function calls and their outputs, reasoning")]
    instructions: Annotated[str | None, Honoured("a system message at the front; not carried to the next response")] = (
        None
    )
    previous_response_id: Annotated[str | None, Honoured("goes on after a stored response of the same key")] = None
    tools: Annotated[list[AnyTool] | None, Honoured("of type `function`; hosted and custom tools are refused")] = None
    tool_choice: Annotated[ToolChoiceField, Honoured("`auto`, `none`, `required`, or one function")] = None
    parallel_tool_calls: Annotated[bool | None, Honoured("false: one call at most")] = None
    text: Annotated[
        TextOptions | None, Honoured("`format`: text, json_object, json_schema; `verbosity`: only medium")
    ] = None
    reasoning: Annotated[
        ReasoningField | None,
        Honoured("`effort` goes to the chat template; `summary`: only auto, reasoning is given as it is"),
    ] = None
    truncation: Annotated[
        Literal["auto", "disabled"] | None, Honoured("auto: the oldest turns are left out until the rest fits")
    ] = None
    chat_template_kwargs: Annotated[JsonObject | None, Honoured("variables for the chat template")] = None

    conversation: Annotated[Any, Refused("there is no conversations API; use previous_response_id")] = None

    def check_input(self) -> None:
        """
        Raises:
            InvalidRequestError: there is nothing to answer.
        """
        if not self.input and self.previous_response_id is None:
            raise InvalidRequestError("input", self.input, "must hold at least one item")


class InputTokensBody(PromptBody):
    """A prompt whose tokens are to be counted."""

    personality: Annotated[Any, Refused("there are no personalities; see instructions")] = None


class ResponseBody(PromptBody):
    """A request for a response."""

    store: Annotated[bool | None, Honoured("kept if absent, unless the server keeps none: then true is refused")] = None
    stream: Annotated[bool | None, Honoured("server-sent events; the last one is the end of the response")] = None
    stream_options: Annotated[StreamOptions | None, Honoured("only `include_obfuscation: false`")] = None
    include: Annotated[
        list[str] | None,
        Honoured("`message.output_text.logprobs`; parts of hosted tools do not occur; others are refused"),
    ] = None
    top_logprobs: Annotated[int | None, Honoured("up to `--max-logprobs`; includes logprobs by itself")] = None
    max_output_tokens: Annotated[int | None, Honoured("of text, reasoning and calls; absent: all that fits")] = None
    temperature: Annotated[float | None, Honoured("0 (greedy) to 100; the model's own default if absent")] = None
    top_p: Annotated[float | None, Honoured("in (0, 1]")] = None
    metadata: Annotated[
        dict[str, str] | None, Honoured("given back; 16 entries, keys of 64, values of 512 characters")
    ] = None

    top_k: Annotated[int | None, Honoured("0 or -1: off")] = None
    min_p: Annotated[float | None, Honoured("in [0, 1]")] = None
    frequency_penalty: Annotated[float | None, Honoured("in [-2, 2], over output tokens")] = None
    presence_penalty: Annotated[float | None, Honoured("in [-2, 2], over output tokens")] = None
    repetition_penalty: Annotated[float | None, Honoured("over prompt and output tokens")] = None
    seed: Annotated[int | None, Honoured("0 to 2^63 - 1; the same seed gives the same tokens, in any company")] = None
    stop: Annotated[StopList, Honoured("strings that end the response")] = None
    stop_token_ids: Annotated[list[int] | None, Honoured("beside the model's own end ids")] = None
    min_tokens: Annotated[int | None, Honoured("no end before this many tokens")] = None
    ignore_eos: Annotated[bool | None, Honoured("go on past the model's end ids")] = None
    logit_bias: Annotated[dict[int, float] | None, Honoured("token id to [-100, 100]")] = None
    bad_words: Annotated[BadWords, Honoured("words that must not appear")] = None
    allowed_token_ids: Annotated[list[int] | None, Honoured("only these can be sampled")] = None
    repetition_detection: Annotated[
        RepetitionBody | None, Honoured("the response is incomplete, by `repetition`, when it repeats itself so often")
    ] = None
    logits_processors: Annotated[
        dict[str, dict[str, Any]] | None, Honoured("plug-ins of `--logits-processors` and their arguments, by name")
    ] = None
    thinking_token_budget: Annotated[
        int | None, Honoured("most tokens of reasoning, then its end is written for the model; -1: any number")
    ] = None
    cache_salt: Annotated[str | None, Honoured("prefixes are shared only with requests of the same salt")] = None
    session_id: Annotated[str | None, Honoured("prompt and answer stay in the KV memory for the next turn")] = None
    session_lease_s: Annotated[float | None, Honoured("with `session_id`: seconds from its last use")] = None
    priority: Annotated[int | None, Honoured("lower first; needs a policy that reads it")] = None

    user: Annotated[str | None, Harmless("given back")] = None
    safety_identifier: Annotated[str | None, Harmless("given back")] = None
    prompt_cache_key: Annotated[str | None, Harmless("the prefix cache needs no hint")] = None
    prompt_cache_retention: Annotated[str | None, Harmless("an upper bound; blocks leave earlier if need be")] = None
    max_tool_calls: Annotated[int | None, Harmless("it bounds calls of hosted tools, and there are none")] = None

    background: Annotated[Any, Refused("responses are made while their client waits", neutral=(False,))] = None
    prompt: Annotated[Any, Refused("there are no stored prompts")] = None
    prompt_cache_options: Annotated[Any, Refused("use session_id to have a prefix held")] = None
    context_management: Annotated[Any, Refused("nothing is compacted; see truncation", neutral=([],))] = None
    moderation: Annotated[Any, Refused("there is no moderation")] = None
    service_tier: Annotated[Any, Refused("there is one service tier", neutral=("auto", "default"))] = None

    def check(self) -> None:
        """What types cannot say.

        Raises:
            InvalidRequestError: naming the field.
        """
        self.check_input()
        if self.stream_options is not None and not self.stream:
            raise InvalidRequestError("stream_options", self.stream_options.model_dump(), "needs stream=true")
        for name in self.include or ():
            if name not in (LOGPROBS, *HOSTED_OUTPUT):
                known = ", ".join((LOGPROBS, *HOSTED_OUTPUT))
                raise InvalidRequestError("include", name, f"cannot be included; known are {known}")
        _check_metadata(self.metadata or {})

    def num_logprobs(self) -> int | None:
        """How many logprobs per token are wanted; None: none."""
        if self.top_logprobs is not None:
            return self.top_logprobs
        return 0 if LOGPROBS in (self.include or ()) else None

    def generation_body(self) -> GenerationBody:
        """The fields that other generating endpoints have, too."""
        same = {name: getattr(self, name) for name in SAME_FIELDS}
        return GenerationBody(max_tokens=self.max_output_tokens, **same)


SAME_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "stop",
    "stop_token_ids",
    "min_tokens",
    "ignore_eos",
    "logit_bias",
    "bad_words",
    "allowed_token_ids",
    "repetition_detection",
    "logits_processors",
    "cache_salt",
    "session_id",
    "session_lease_s",
    "priority",
)
"""Fields of the same name and meaning in `GenerationBody`."""


def _check_metadata(metadata: dict[str, str]) -> None:
    if len(metadata) > 16:
        raise InvalidRequestError("metadata", len(metadata), "must hold at most 16 entries")
    for key, value in metadata.items():
        if len(key) > 64 or len(value) > 512:
            raise InvalidRequestError("metadata", key, "keys have at most 64 characters, values 512")
