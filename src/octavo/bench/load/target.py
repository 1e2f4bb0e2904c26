"""Requests for the server under load, as bytes."""

from dataclasses import dataclass
from typing import Any

import msgspec

from octavo.bench.load.address import address_of
from octavo.bench.load.dialogue import Prompt, Turn
from octavo.bench.load.settings import TargetSettings

PATHS: dict[str, str] = {"completions": "/completions", "chat": "/chat/completions"}


@dataclass(frozen=True)
class Target:
    """Makes requests, as bytes, for one server."""

    settings: TargetSettings
    model: str

    def ask(self, turn: Turn, history: "list[Said]") -> bytes:
        """The request of a turn after all that was said before it."""
        fields: dict[str, Any] = {
            "model": self.model,
            **self._said(turn.prompt, history),
            "max_tokens": turn.output_len,
        }
        fields |= {"temperature": self._temperature, "ignore_eos": self.settings.ignore_eos or None}
        fields |= {"stream": True, "stream_options": {"include_usage": True}} if self.settings.stream else {}
        fields |= self.settings.extra_body
        body = msgspec.json.encode({name: value for name, value in fields.items() if value is not None})
        return request_bytes(self.settings, "POST", PATHS[self.settings.endpoint], body)

    @property
    def _temperature(self) -> float | None:
        given = self.settings.temperature
        return None if given is None or given < 0 else given

    def _said(self, prompt: Prompt, history: "list[Said]") -> dict[str, Any]:
        if self.settings.endpoint == "chat":
            return {"messages": [message for said in [*history, Said(prompt, "")] for message in said.messages()]}
        if not history:
            return {"prompt": prompt}
        return {"prompt": " ".join(f"{said.prompt} {said.answer}" for said in history) + f" {prompt}"}


@dataclass(frozen=True)
class Said:
    """A turn that is over."""

    prompt: Prompt
    answer: str

    def messages(self) -> list[dict[str, Any]]:
        """For a chat; the answer only if there is one."""
        asked = [{"role": "user", "content": self.prompt}] if isinstance(self.prompt, str) else [*self.prompt]
        answered = [{"role": "assistant", "content": self.answer}] if self.answer else []
        return [*asked, *answered]


def request_bytes(settings: TargetSettings, method: str, path: str, body: bytes = b"") -> bytes:
    """A whole HTTP/1.1 request."""
    address = address_of(settings.url)
    host = f"[{address.host}]" if ":" in address.host else address.host
    lines = [f"{method} {address.base}{path} HTTP/1.1", f"Host: {host}:{address.port}", "Accept: */*"]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    if settings.api_key is not None:
        lines.append(f"Authorization: Bearer {settings.api_key}")
    return "\r\n".join([*lines, *settings.header, "", ""]).encode("latin-1") + body
