"""The request models know every field of OpenAI's API, and the page that lists them is true."""

from pathlib import Path
from typing import Any, get_type_hints

import pytest
from anthropic.types.message_count_tokens_params import MessageCountTokensParams as CountParams
from anthropic.types.message_create_params import MessageCreateParamsBase as MessageParams
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatParams
from openai.types.completion_create_params import CompletionCreateParamsBase as CompletionParams
from openai.types.embedding_create_params import EmbeddingCreateParams as EmbeddingParams
from openai.types.responses.input_token_count_params import InputTokenCountParams as InputTokensParams
from openai.types.responses.response_create_params import ResponseCreateParamsBase as ResponseParams

from octavo.server.anthropic.messages_body import CountTokensBody, MessagesBody
from octavo.server.field_table import PAGES, field_table
from octavo.server.fields import Honoured, Refused, RequestBody, treatments
from octavo.server.native.tokens import DetokenizeBody, TokenizeBody
from octavo.server.openai.chat_body import ChatBody
from octavo.server.openai.completion_body import CompletionBody
from octavo.server.openai.embedding_body import EmbeddingBody
from octavo.server.responses.response_body import InputTokensBody, ResponseBody

BODIES = [body for endpoints in PAGES.values() for _, body in endpoints]
DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize(
    ("body", "official"),
    [
        (ChatBody, ChatParams),
        (CompletionBody, CompletionParams),
        (ResponseBody, ResponseParams),
        (InputTokensBody, InputTokensParams),
        (MessagesBody, MessageParams),
        (CountTokensBody, CountParams),
        (EmbeddingBody, EmbeddingParams),
    ],
)
def test_every_official_field_is_known(body: type[RequestBody], official: Any) -> None:
    streams = set() if body in (CountTokensBody, InputTokensBody, EmbeddingBody) else {"stream"}
    assert set(get_type_hints(official)) | streams <= set(treatments(body))


@pytest.mark.parametrize("body", [*BODIES, TokenizeBody, DetokenizeBody])
def test_every_field_has_one_treatment(body: type[RequestBody]) -> None:
    assert set(treatments(body)) == set(body.model_fields)


def test_a_field_without_treatment_is_a_mistake() -> None:
    class Careless(RequestBody):
        """A body with a field that nobody thought about."""

        field: int = 0

    with pytest.raises(TypeError, match=r"Careless\.field needs exactly one of"):
        treatments(Careless)


@pytest.mark.parametrize("body", [ChatBody, CompletionBody])
def test_refused_fields_say_why_and_honoured_ones_are_not_refused(body: type[RequestBody]) -> None:
    kinds = treatments(body)
    assert all(treatment.reason for treatment in kinds.values() if isinstance(treatment, Refused))
    assert sum(isinstance(treatment, Honoured) for treatment in kinds.values()) > 25


@pytest.mark.parametrize("page", PAGES)
def test_the_page_holds_the_table(page: str) -> None:
    assert (DOCS / f"{page}.md").read_text().endswith("<!-- field table -->\n" + field_table(page))
