"""The tables of request fields at the ends of pages in docs/, from the request models:
`python -m octavo.server.field_table server`."""

import sys

from octavo.server.anthropic.messages_body import CountTokensBody, MessagesBody
from octavo.server.fields import Harmless, Honoured, Refused, RequestBody, Treatment, treatments
from octavo.server.native.admin import DrainBody, PauseBody
from octavo.server.native.profiles import ProfileBody, ProfileStartBody
from octavo.server.native.requests import AbortBody
from octavo.server.native.sessions import LeaseBody, SessionBody
from octavo.server.openai.chat_body import ChatBody
from octavo.server.openai.completion_body import CompletionBody
from octavo.server.openai.embedding_body import EmbeddingBody
from octavo.server.responses.response_body import InputTokensBody, ResponseBody

PAGES: dict[str, tuple[tuple[str, type[RequestBody]], ...]] = {
    "server": (
        ("POST /v1/completions", CompletionBody),
        ("POST /v1/chat/completions", ChatBody),
        ("POST /v1/sessions", SessionBody),
        ("POST /v1/sessions/NAME/extend", LeaseBody),
    ),
    "embeddings": (("POST /v1/embeddings", EmbeddingBody),),
    "responses": (("POST /v1/responses", ResponseBody), ("POST /v1/responses/input_tokens", InputTokensBody)),
    "operations": (
        ("POST /v1/abort", AbortBody),
        ("POST /admin/pause", PauseBody),
        ("POST /admin/drain", DrainBody),
        ("POST /admin/profile", ProfileBody),
        ("POST /admin/profile/start", ProfileStartBody),
    ),
    "anthropic": (("POST /v1/messages", MessagesBody), ("POST /v1/messages/count_tokens", CountTokensBody)),
}
"""Page -> the endpoints whose fields stand at its end."""


def field_table(page: str) -> str:
    """The tables of one page, in Markdown."""
    return "\n".join(_table(title, body) for title, body in PAGES[page])


def _table(title: str, body: type[RequestBody]) -> str:
    rows = [_row(name, treatment) for name, treatment in sorted(treatments(body).items())]
    return "\n".join([f"### {title}", "", "| field | treatment | |", "|---|---|---|", *rows, ""])


def _row(name: str, treatment: Treatment) -> str:
    match treatment:
        case Honoured(note=note):
            return f"| `{name}` | honoured | {note} |"
        case Harmless(note=note):
            return f"| `{name}` | accepted, no effect | {note} |"
        case Refused(reason=reason, neutral=neutral):
            values = ", ".join(f"`{_json(value)}`" for value in (None, *neutral))
            return f"| `{name}` | refused, but for {values} | {reason} |"


def _json(value: object) -> str:
    spelled = {None: "null", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return spelled[value]
    return str(value).replace("'", '"') if not isinstance(value, str) else f'"{value}"'


if __name__ == "__main__":
    sys.stdout.write(field_table(sys.argv[1]))
