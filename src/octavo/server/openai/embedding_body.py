"""The body of POST /v1/embeddings."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, PlainValidator, WithJsonSchema

from octavo.request.pooling import Pooling
from octavo.server.fields import Harmless, Honoured, Refused, RequestBody
from octavo.server.openai.prompt_forms import PROMPT_SCHEMA, PromptForms, prompt_list

MAX_INPUTS = 2048
"""As OpenAI's."""


def _not_blank(inputs: PromptForms) -> PromptForms:
    if "" in inputs:
        raise ValueError("must not hold an empty text")
    return inputs


class EmbeddingBody(RequestBody):
    """A request for the vectors of texts."""

    model: Annotated[str | None, Honoured("one of /v1/models, 404 otherwise; absent: the model served")] = None
    input: Annotated[
        PromptForms,
        PlainValidator(prompt_list(MAX_INPUTS)),
        AfterValidator(_not_blank),
        WithJsonSchema(PROMPT_SCHEMA),
        Honoured(f"text, list of texts, token ids, list of token id lists; up to {MAX_INPUTS}, none of them empty"),
    ]
    encoding_format: Annotated[
        Literal["float", "base64"] | None, Honoured("`float` if absent; `base64` holds little-endian float32")
    ] = None
    dimensions: Annotated[
        int | None, Honoured("the first so many numbers, scaled again; up to the model's own size")
    ] = None
    user: Annotated[str | None, Harmless("not stored")] = None
    pooling: Annotated[Pooling | None, Honoured("`last` (if absent) or `mean`: which positions count")] = None
    normalize: Annotated[bool | None, Honoured("false: vectors keep their length; true if absent")] = None
    add_special_tokens: Annotated[
        bool | None, Honoured("to texts, such as the token that begins one; true if absent")
    ] = None
    truncate_prompt_tokens: Annotated[
        int | None, Honoured("keep the last k tokens of each input; -1: as many as the context holds")
    ] = None
    truncation_side: Annotated[
        Literal["left", "right"] | None, Honoured("with `truncate_prompt_tokens`: which end goes; `left` if absent")
    ] = None
    cache_salt: Annotated[str | None, Honoured("prefixes are shared only with requests of the same salt")] = None
    priority: Annotated[
        int | None, Honoured("lower first; needs a policy that reads it, such as `priority`; else only 0")
    ] = None
    embed_dtype: Annotated[Any, Refused("numbers are float32", neutral=("float32",))] = None
    endianness: Annotated[Any, Refused("base64 holds little-endian numbers", neutral=("little", "native"))] = None
