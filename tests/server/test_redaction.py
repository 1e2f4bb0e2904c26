"""Nothing of what clients say, hear or know goes into logs, and nothing of the server's inside into answers."""

import contextlib
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from octavo.config import ServerConfig
from octavo.log import JsonFormatter, TextFormatter
from octavo.server.app import build_app
from octavo.server.endpoints import EndpointRoute
from tests.server.conftest import FakeServer, fake
from tests.server.fake_engine import EOS, FakeTokenizer
from tests.server.running import running_server

PROMPT = "PROMPTMARK"
ANSWER = "ANSWERMARK"
KEY = "sk-KEYMARK-0123456789"
ADMIN = "sk-ADMINMARK-0123456789"
SECRETS = (PROMPT, ANSWER, "KEYMARK", "ADMINMARK", "Bearer")
INSIDE = re.compile(
    r"Traceback|site-packages|/opt/|/usr/|/root|\.py\b|0x[0-9a-f]{6,}|octavo\.(server|engine|text)|pydantic|starlette"
)


class Lines(logging.Handler):
    """All that is logged, as both formats print it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self._formatters = (TextFormatter("server"), JsonFormatter("server"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(("httpx", "httpcore")):  # the client's, in the same process
            return
        self.lines += [formatter.format(record) for formatter in self._formatters]


@contextlib.contextmanager
def listening(level: int) -> Iterator[Lines]:
    handler = Lines()
    loggers = [logging.getLogger(), logging.getLogger("octavo")]
    before = [logger.level for logger in loggers]
    loggers[0].addHandler(handler)
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield handler
    finally:
        loggers[0].removeHandler(handler)
        for logger, old in zip(loggers, before, strict=True):
            logger.setLevel(old)


@pytest.fixture
def marked() -> Iterator[FakeServer]:
    """Answers with a mark, logs accesses, has keys."""
    config = ServerConfig(port=0, api_key=(KEY,), admin_key=(ADMIN,), access_log=True)
    with running_server(fake, config) as running:
        ids = FakeTokenizer().encode(ANSWER, add_special=False)
        running.engine.scripts["<|bos|>" + PROMPT] = running.engine.scripts[PROMPT] = [*ids, EOS]
        yield running


def bodies(path: str) -> list[Any]:
    """What is right for some endpoint, and wrong in many ways for all."""
    said = {"role": "user", "content": PROMPT}
    return [
        {"prompt": PROMPT, "max_tokens": 20},
        {"prompt": PROMPT, "max_tokens": 20, "stream": True},
        {"messages": [said], "max_tokens": 20},
        {"messages": [said], "stream": True, "max_tokens": 5},
        {"input": PROMPT, "max_output_tokens": 20},
        {"input": PROMPT},
        {"tokens": [80, 82]},
        {"session_id": "s", "prompt": PROMPT},
        {},
        {"prompt": [PROMPT, 5]},
        {"prompt": PROMPT, "temperature": PROMPT},
        {PROMPT: PROMPT},
        {"messages": [{"role": PROMPT, "content": PROMPT}]},
        {"messages": [said], "tools": [{"type": "function", "function": {"name": PROMPT + "!"}}]},
        {"messages": [said], "chat_template_kwargs": {PROMPT: PROMPT}},
        {"prompt": "poison", "max_tokens": 5},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"http://{PROMPT}"}}]}]},
        {"request_id": PROMPT},
        [PROMPT],
        PROMPT,
        f'{{"prompt": "{PROMPT}'.encode(),
        f'{{"prompt": "{PROMPT}\\ud800"}}'.encode(),
        b'{"prompt": "\xff' + PROMPT.encode(),
    ]


def send_everything(server: FakeServer, key: str, admin: str) -> list[httpx.Response]:
    """All bodies to all endpoints."""
    routes = [route for route in build_app(server.context).routes if isinstance(route, EndpointRoute)]
    answers = []
    with httpx.Client(base_url=server.url, timeout=30) as http:
        for route in routes:
            path = re.sub(r"\{[^}]*\}", PROMPT, route.path)
            shown = admin if path.startswith("/admin") else key
            (method,) = (route.methods or set()) - {"HEAD"}
            bearer = {"Authorization": f"Bearer {shown}"}
            for body in bodies(path)[: None if key == KEY else 1] if method == "POST" else [b""]:
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                answers.append(http.request(method, f"{path}?api_key={shown}", content=content, headers=bearer))
            for headers in ({"x-api-key": shown}, {"Authorization": shown}):
                answers.append(http.request(method, path, content=b"{}", headers=headers))
    return answers


def test_logs_hold_no_secret(marked: FakeServer) -> None:
    """Not even while debugging."""
    marked.engine.fail_after["poison"] = marked.engine.fail_after["<|bos|>poison"] = 1
    with listening(logging.DEBUG) as log:
        for key, admin in ((KEY, ADMIN), (KEY + "wrong", ADMIN + "wrong")):
            answers = send_everything(marked, key, admin)
            served = {answer.url.path for answer in answers if answer.status_code == 200}
            assert ("/v1/completions" in served) == ("/admin/requests" in served) == (key == KEY)
    assert [line for line in log.lines if "octavo.access" in line]
    told = [line for line in log.lines if any(secret in line for secret in SECRETS)]
    # Ids in a path are the client's to choose, and the access log names paths.
    told = [line for line in told if not ("octavo.access" in line and line.count(PROMPT) == 1 and f"/{PROMPT}" in line)]
    assert told == []


def test_the_marks_would_be_seen(marked: FakeServer) -> None:
    with listening(logging.DEBUG) as log:
        logging.getLogger("octavo.server").warning("%s", PROMPT)
    assert any(PROMPT in line for line in log.lines)
    answer = httpx.post(
        f"{marked.url}/v1/completions",
        json={"prompt": PROMPT, "max_tokens": 20},
        headers={"Authorization": f"Bearer {KEY}"},
    )
    assert ANSWER in answer.text


def test_errors_show_nothing_of_the_inside(marked: FakeServer) -> None:
    marked.engine.fail_after["poison"] = 1
    answers = send_everything(marked, KEY, ADMIN)
    original = marked.engine.generate

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"/opt/secret/engine.py at 0x7f0012345678 {ANSWER}")

    marked.engine.generate = broken  # type: ignore[assignment, method-assign]
    answers += send_everything(marked, KEY, ADMIN)
    marked.engine.generate = original  # type: ignore[method-assign]
    failed = [answer for answer in answers if answer.status_code >= 400]
    assert len(failed) > 100
    assert 500 in {answer.status_code for answer in failed}
    for answer in failed:
        assert "error" in answer.json()
        assert not INSIDE.search(answer.text), answer.text
        assert ANSWER not in answer.text
        assert "KEYMARK" not in answer.text
        assert "ADMINMARK" not in answer.text


HOSTILE_PATHS = ["/v1/models/x%0aWARNING%20forged", "/x%0d%0aERROR%20forged", "/%1b[31mforged", "/x%c2%85forged"]


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_a_client_begins_no_line_of_its_own(marked: FakeServer, path: str) -> None:
    with listening(logging.DEBUG) as log:
        headers = {"Authorization": f"Bearer {KEY}", "X-Request-Id": "x"}
        for method in ("GET", "POST"):
            httpx.request(method, marked.url + path, headers=headers)
        httpx.post(f"{marked.url}/v1/completions", json={"model": "x\nERROR forged", "prompt": "y"}, headers=headers)
    assert any("forged" in line for line in log.lines)
    for line in log.lines:
        assert not re.search(r"[\n\r\x1b]" if line.startswith("{") else r"[\n\r\x1b\x85]", line), line
