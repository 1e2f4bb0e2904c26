"""Nothing is fetched and nothing is opened because a request says so."""

import socket
from typing import Any

import httpx
import pytest

from tests.server.conftest import FakeServer
from tests.server.test_refusals import check_error

HI = {"role": "user", "content": "x"}
URLS = [
    "http://127.0.0.1:{port}/",
    "http://[::1]:{port}/",
    "http://0x7f000001:{port}/",
    "http://allowed.example\\@127.0.0.1:{port}/",
    "file:///etc/passwd",
    "ftp://127.0.0.1:{port}/x",
    "data:image/png;base64,iVBORw0KGgo=",
    "notaurl",
]


def bodies(url: str) -> list[tuple[str, dict[str, Any], str]]:
    """Every place where some API has a URL: path, body, and what the error must name."""
    chat, responses, messages = "/v1/chat/completions", "/v1/responses", "/v1/messages"

    def chat_part(part: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": [{"type": "text", "text": "look"}, part]}]}

    def input_part(part: dict[str, Any]) -> dict[str, Any]:
        return {"input": [{"role": "user", "content": [part]}]}

    def block(part: dict[str, Any]) -> dict[str, Any]:
        return {"max_tokens": 5, "messages": [{"role": "user", "content": [part]}]}

    return [
        (chat, chat_part({"type": "image_url", "image_url": {"url": url}}), "image_url"),
        (chat, chat_part({"type": "video_url", "video_url": {"url": url}}), "video_url"),
        (chat, chat_part({"type": "audio_url", "audio_url": {"url": url}}), "audio_url"),
        (chat, chat_part({"type": "file", "file": {"file_data": url}}), "file"),
        (chat, {"messages": [{**HI, "image_url": url}]}, "image_url"),
        ("/v1/completions", {"prompt": "x", "image_data": [url]}, "image_data"),
        (responses, input_part({"type": "input_image", "image_url": url}), "input_image"),
        (responses, input_part({"type": "input_file", "file_url": url}), "input_file"),
        (messages, block({"type": "image", "source": {"type": "url", "url": url}}), "image"),
        (messages, block({"type": "document", "source": {"type": "url", "url": url}}), "document"),
        ("/v1/embeddings", {"input": "x", "image_url": url}, "image_url"),
    ]


@pytest.mark.parametrize("url", URLS)
def test_urls_are_refused_by_name_and_never_visited(server: FakeServer, http: httpx.Client, url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as trap:
        seen = len(server.engine.seen)
        for path, body, named in bodies(url.replace("{port}", str(trap.getsockname()[1]))):
            answer = http.post(path, json=body)
            assert answer.status_code == 400, (path, answer.text)
            assert named in answer.json()["error"]["message"], answer.text
        assert len(server.engine.seen) == seen
        trap.setblocking(False)
        with pytest.raises(BlockingIOError):
            trap.accept()


NAMES = ["../../etc/passwd", "/etc/passwd", "fake/..", "..%2f..%2fetc%2fpasswd", "fake\x00", "..\\..\\x", "~root", "."]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_name_is_a_name_and_no_path(http: httpx.Client, name: str) -> None:
    for path, body in (
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/chat/completions", {"messages": [HI]}),
        ("/v1/responses", {"input": "x"}),
        ("/v1/messages", {"messages": [HI], "max_tokens": 5}),
        ("/v1/embeddings", {"input": "x"}),
        ("/tokenize", {"prompt": "x"}),
    ):
        answer = http.post(path, json={**body, "model": name})
        assert answer.status_code == 404, (path, answer.text)
        assert "root:" not in answer.text
    quoted = name.replace("\x00", "%00").replace(".", "%2e")  # so that the client leaves the dots alone
    assert http.get(f"/v1/models/{quoted}").status_code == 404
    for path in (f"/v1/sessions/{quoted}", f"/v1/requests/{quoted}", f"/v1/responses/{quoted}"):
        assert http.get(path).status_code in (400, 404)


@pytest.mark.parametrize("name", ["../x", "a/b", "a\x00", "a b", "x" * 129])
def test_names_of_sessions(http: httpx.Client, name: str) -> None:
    check_error(http.post("/v1/sessions", json={"session_id": name}), 400, "session_id")
