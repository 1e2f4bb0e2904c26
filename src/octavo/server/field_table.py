"""The table of request fields in docs/server.md, from the request models: `python -m octavo.server.field_table`."""

import sys

from octavo.server.fields import Harmless, Honoured, Refused, RequestBody, Treatment, treatments
from octavo.server.native.sessions import LeaseBody, SessionBody
from octavo.server.openai.chat_body import ChatBody
from octavo.server.openai.completion_body import CompletionBody


def field_table() -> str:
    """The fields of all endpoints that have a table, in Markdown."""
    parts = (
        ("POST /v1/completions", CompletionBody),
        ("POST /v1/chat/completions", ChatBody),
        ("POST /v1/sessions", SessionBody),
        ("POST /v1/sessions/NAME/extend", LeaseBody),
    )
    return "\n".join(_table(title, body) for title, body in parts)


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
    sys.stdout.write(field_table())
