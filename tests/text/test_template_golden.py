"""Chat templates render exactly as Hugging Face's transformers render them."""

from datetime import datetime
from typing import Any

import pytest

from octavo.errors import InvalidRequestError
from octavo.text.messages import flatten_messages
from octavo.text.template import ChatTemplate
from octavo.text.template_source import template_from_gguf
from tests.text import golden

ROWS = golden.rows("chat_templates")
FLATTENED = "null_content_as_empty+parse_tool_arguments"


def name(row: dict[str, Any]) -> str:
    return f"{row['template_name']}-{row['conversation']}-{row['policy']}"


def render(row: dict[str, Any], messages: list[dict[str, Any]]) -> str:
    variables = dict(row["variables"])
    template = ChatTemplate(row["template"], bos_token=variables.pop("bos_token"), eos_token=variables.pop("eos_token"))
    return template.render(
        messages,
        tools=row["tools"],
        add_generation_prompt=row["add_generation_prompt"],
        now=datetime.fromisoformat(row["now"]),
        variables=variables,
    )


@pytest.mark.parametrize("row", ROWS, ids=name)
def test_rendering(row: dict[str, Any]) -> None:
    messages = row["messages_effective"] or row["messages"]
    if row["error"] is None:
        assert render(row, messages) == row["rendered"]
        return
    with pytest.raises(InvalidRequestError) as caught:
        render(row, messages)
    if row["error"]["kind"] == "TemplateError":
        assert str(caught.value).endswith(f"the chat template refuses this conversation: {row['error']['message']}")


@pytest.mark.parametrize("row", [row for row in ROWS if row["policy"] in ("join_parts_newline", FLATTENED)], ids=name)
def test_flattening_gives_what_the_reference_gave_its_template(row: dict[str, Any]) -> None:
    assert flatten_messages(row["messages"]) == row["messages_effective"]


@pytest.mark.parametrize("row", [row for row in ROWS if row["policy"] == "as_is" and not row["error"]], ids=name)
def test_flattening_leaves_plain_conversations_alone(row: dict[str, Any]) -> None:
    plain = all(isinstance(message.get("content"), str) for message in row["messages"])
    if plain:
        assert flatten_messages(row["messages"]) == row["messages"]


@pytest.mark.parametrize("model", ["smollm2", "qwen2"])
def test_the_templates_are_those_of_the_models(model: str) -> None:
    source = template_from_gguf(golden.metadata(model))
    assert source == next(row["template"] for row in ROWS if row["template_name"] == model)


def test_a_base_model_has_none() -> None:
    assert template_from_gguf(golden.metadata("gemma3")) is None
