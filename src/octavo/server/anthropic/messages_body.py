"""The bodies of POST /v1/messages and POST /v1/messages/count_tokens."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from octavo.errors import InvalidRequestError
from octavo.server.anthropic.blocks import AnyTool, CacheControl, InputMessage, Text
from octavo.server.fields import Harmless, Honoured, Refused, RequestBody, StrictModel, tag_by_type
from octavo.server.json_object import JsonObject
from octavo.server.openai.generation_body import MAX_STOP_CHARS, MAX_STOP_STRINGS, GenerationBody
from octavo.server.openai.message import MAX_MESSAGES

StopText = Annotated[str, Field(max_length=MAX_STOP_CHARS)]


class ToolChoice(StrictModel):
    """Whether tools are used, and which."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    def check(self) -> None:
        """
        Raises:
            InvalidRequestError: a name where none belongs, or none where one does.
        """
        if (self.type == "tool") != (self.name is not None):
            raise InvalidRequestError("tool_choice.name", self.name, "goes with type 'tool', and only with that")


class ThinkingEnabled(StrictModel):
    """The model thinks, for so many tokens at most."""

    type: Literal["enabled"]
    budget_tokens: Annotated[int, Field(ge=1)]
    display: Literal["summarized"] | None = None
    """The thinking itself is given; there is no shorter form of it."""


class ThinkingAdaptive(StrictModel):
    """The model thinks as long as it likes."""

    type: Literal["adaptive"]
    display: Literal["summarized"] | None = None


class ThinkingDisabled(StrictModel):
    """The model does not think."""

    type: Literal["disabled"]


def _refuse_thinking(value: Any) -> Any:
    raise ValueError("must be an object whose type is enabled, adaptive or disabled")


Thinking = Annotated[
    Annotated[ThinkingEnabled, Tag("[enabled]")]
    | Annotated[ThinkingAdaptive, Tag("[adaptive]")]
    | Annotated[ThinkingDisabled, Tag("[disabled]")]
    | Annotated[Any, BeforeValidator(_refuse_thinking), Tag("[other]")],
    Discriminator(tag_by_type("enabled", "adaptive", "disabled")),
]


class JsonFormat(StrictModel):
    """An answer that keeps to a schema."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(StrictModel):
    """What the answer must be like."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


class Metadata(StrictModel):
    """Who the request is for."""

    user_id: str | None = None


class ConversationBody(RequestBody):
    """What makes up a prompt."""

    model: Annotated[str | None, Honoured("one of /v1/models, 404 otherwise; absent: the model served")] = None
    messages: Annotated[
        Annotated[list[InputMessage], Field(max_length=MAX_MESSAGES)],
        Honoured("text, tool_use, tool_result and thinking blocks; an assistant's at the end is gone on with"),
    ]
    system: Annotated[Text | None, Honoured("a text, or blocks of text")] = None
    tools: Annotated[list[AnyTool] | None, Honoured("of the client; server tools are refused")] = None
    tool_choice: Annotated[ToolChoice | None, Honoured("auto, any, tool, none; `disable_parallel_tool_use`")] = None
    thinking: Annotated[
        Thinking | None,
        Honoured("enabled with `budget_tokens`, adaptive, disabled; absent: as the model does by itself"),
    ] = None
    output_config: Annotated[
        OutputConfig | None, Honoured("`format`: a JSON schema; `effort` goes to the chat template")
    ] = None
    chat_template_kwargs: Annotated[JsonObject | None, Honoured("variables for the chat template")] = None
    cache_control: Annotated[CacheControl, Harmless("prefixes are cached wherever they end")] = None

    speed: Annotated[Any, Refused("there is one speed", neutral=("standard",))] = None
    user_profile_id: Annotated[Any, Refused("there are no user profiles")] = None
    workspace_id: Annotated[Any, Refused("there are no workspaces; a key sees its own")] = None


class CountTokensBody(ConversationBody):
    """A conversation whose tokens are to be counted."""


class MessagesBody(ConversationBody):
    """A request for a message."""

    max_tokens: Annotated[
        int, Honoured("an upper bound, thinking included; where the context ends before, so does the answer")
    ]
    stream: Annotated[bool | None, Honoured("server-sent events")] = None
    stop_sequences: Annotated[
        Annotated[list[StopText], Field(max_length=MAX_STOP_STRINGS)] | None,
        Honoured(f"up to {MAX_STOP_STRINGS} texts"),
    ] = None
    temperature: Annotated[float | None, Honoured("0 (greedy) to 100; the model's own default if absent")] = None
    top_p: Annotated[float | None, Honoured("in (0, 1]")] = None
    top_k: Annotated[int | None, Honoured("0 or -1: off")] = None

    min_p: Annotated[float | None, Honoured("in [0, 1]")] = None
    repetition_penalty: Annotated[float | None, Honoured("over prompt and output tokens")] = None
    seed: Annotated[int | None, Honoured("0 to 2^63 - 1; the same seed gives the same tokens, in any company")] = None
    cache_salt: Annotated[str | None, Honoured("prefixes are shared only with requests of the same salt")] = None
    session_id: Annotated[str | None, Honoured("prompt and answer stay in the KV memory for the next turn")] = None
    session_lease_s: Annotated[float | None, Honoured("with `session_id`: seconds from its last use")] = None
    priority: Annotated[int | None, Honoured("lower first; needs a policy that reads it")] = None

    metadata: Annotated[Metadata | None, Harmless("not stored")] = None
    service_tier: Annotated[Any, Refused("there is one service tier", neutral=("auto", "standard_only"))] = None
    container: Annotated[Any, Refused("there are no containers")] = None
    diagnostics: Annotated[Any, Refused("no diagnosis of cache misses is offered")] = None
    inference_geo: Annotated[Any, Refused("the model runs here")] = None

    def generation_body(self) -> GenerationBody:
        """The fields that other generating endpoints have, too."""
        same = {name: getattr(self, name) for name in SAME_FIELDS}
        return GenerationBody(stop=self.stop_sequences, **same)


SAME_FIELDS = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "seed",
    "cache_salt",
    "session_id",
    "session_lease_s",
    "priority",
)
"""Fields of the same name and meaning in `GenerationBody`."""
