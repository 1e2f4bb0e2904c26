"""The request models know every field of OpenAI's API, and the page that lists them is true."""

from pathlib import Path
from typing import Any, get_type_hints

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatParams
from openai.types.completion_create_params import CompletionCreateParamsBase as CompletionParams

from octavo.server.field_table import field_table
from octavo.server.fields import Honoured, Refused, RequestBody, treatments
from octavo.server.native.sessions import LeaseBody, SessionBody
from octavo.server.native.tokens import DetokenizeBody, TokenizeBody
from octavo.server.openai.chat_body import ChatBody
from octavo.server.openai.completion_body import CompletionBody

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize(("body", "official"), [(ChatBody, ChatParams), (CompletionBody, CompletionParams)])
def test_every_official_field_is_known(body: type[RequestBody], official: Any) -> None:
    assert set(get_type_hints(official)) | {"stream"} <= set(treatments(body))


@pytest.mark.parametrize("body", [ChatBody, CompletionBody, TokenizeBody, DetokenizeBody, SessionBody, LeaseBody])
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


def test_the_page_holds_the_table() -> None:
    page = (DOCS / "server.md").read_text()
    assert page.endswith("<!-- field table -->\n" + field_table())
