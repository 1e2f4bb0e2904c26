"""The application without a socket: a request goes in, an answer comes out."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Scope


@dataclass
class AppAnswer:
    """What the application sent."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    """Names in lower case."""
    content: bytearray = field(default_factory=bytearray)

    def json(self) -> Any:
        """The body."""
        return msgspec.json.decode(self.content)


async def ask_app(app: ASGIApp, path: str, body: dict[str, Any]) -> AppAnswer:
    """Posts a JSON body as a client would that waits for the whole answer. Cancelling this is the client leaving."""
    answer = AppAnswer()
    unread = [msgspec.json.encode(body)]

    async def receive() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        never: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        return await never  # this client does not leave

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            answer.content += message.get("body", b"")

    await app(_scope(path), receive, send)
    return answer


def _scope(path: str) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "client": None,
        "server": None,
    }
