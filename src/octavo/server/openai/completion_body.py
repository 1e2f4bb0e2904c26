"""The body of POST /v1/completions."""

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from octavo.server.fields import Honoured, Refused
from octavo.server.openai.generation_body import GenerationBody
from octavo.server.openai.prompt_forms import PROMPT_SCHEMA, PromptForms, prompt_list

MAX_PROMPTS = 1024


class CompletionBody(GenerationBody):
    """A completion request."""

    prompt: Annotated[
        PromptForms,
        PlainValidator(prompt_list(MAX_PROMPTS)),
        WithJsonSchema(PROMPT_SCHEMA),
        Honoured("text, list of texts, token ids, list of token id lists"),
    ]
    echo: Annotated[bool | None, Honoured("the prompt before the answer, with its logprobs if asked")] = None
    logprobs: Annotated[int | None, Honoured("legacy object; up to `--max-logprobs`")] = None
    best_of: Annotated[int | None, Honoured("only equal to `n`: ranking more answers is not offered")] = None
    suffix: Annotated[
        str | None, Honoured("what follows the answer; for models that fill in the middle, such as qwen2.5-coder")
    ] = None
    prompt_embeds: Annotated[Any, Refused("prompts are texts or token ids")] = None
