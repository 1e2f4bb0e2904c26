"""Model files and clients that mean ill, in front of a real engine and a real server."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo import AsyncLLM
from octavo.config import EngineConfig, ServerConfig
from octavo.execution.loader.tiny import write
from tests.end_to_end.conftest import SETTINGS, serving
from tests.server.running import RunningServer, running_server
from tests.server.test_refusals import check_error

SAID = [{"role": "user", "content": "hello"}]
TEMPLATES = {
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ cycler.__init__.__globals__.os.system('touch marker') }}",
    "endless": "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
    "a gigabyte": "{{ 'x' * 1000000000 }}",
}


def model_with(template: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A tiny model file that carries a chat template."""
    build = write.build_vocabulary
    monkeypatch.setattr(write, "build_vocabulary", lambda model: replace(build(model), chat_template=template))
    return str(write.write_tiny_model(folder / "tiny.gguf"))


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] * (k == "endless")) for k in TEMPLATES])
def test_a_template_in_a_model_file_is_kept_in(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """B192. Whatever it does: no code runs, memory and time are bounded, the client gets a 400 or an empty text, and
    others go on meanwhile."""
    monkeypatch.chdir(tmp_path)
    file = model_with(TEMPLATES[kind], tmp_path, monkeypatch)
    with serving(file) as server, httpx.Client(base_url=server.url, timeout=60) as http:
        answers: list[httpx.Response] = []

        def chat() -> None:
            answers.append(httpx.post(f"{server.url}/v1/chat/completions", json={"messages": SAID}, timeout=60))

        asking = threading.Thread(target=chat)
        begin = time.monotonic()
        asking.start()
        assert http.post("/v1/completions", json={"prompt": "hello", "max_tokens": 2}).status_code == 200
        asking.join()
        assert time.monotonic() - begin < 40  # 5 s of processor time, on a machine that may be busy
        (answer,) = answers
        assert answer.status_code == 400, answer.text
        error = check_error(answer, 400)
        assert "Traceback" not in error["message"]
        assert "class '" not in error["message"]
        assert http.get("/health").status_code == 200
    assert not (tmp_path / "marker").exists()


def test_code_beside_a_model_is_not_run(tmp_path: Path) -> None:
    """B193. A folder whose config names Python of its own, in every way that is known."""
    folder = tmp_path / "model"
    write.write_tiny_model(folder, format="safetensors")
    marker = tmp_path / "marker"
    code = f"from pathlib import Path\nPath({str(marker)!r}).touch()\nclass Model: ...\nclass Config: ...\n"
    for name in ("modeling_evil.py", "configuration_evil.py", "tokenization_evil.py", "__init__.py", "conftest.py"):
        (folder / name).write_text(code)
    for name in ("config.json", "tokenizer_config.json"):
        file = folder / name
        config = json.loads(file.read_text()) if file.exists() else {}
        config["auto_map"] = {
            "AutoConfig": "configuration_evil.Config",
            "AutoModelForCausalLM": "modeling_evil.Model",
            "AutoTokenizer": ["tokenization_evil.Tokenizer", None],
        }
        config["custom_pipelines"] = {"x": {"impl": "modeling_evil.Model"}}
        file.write_text(json.dumps(config))
    with serving(str(folder)) as server:
        answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": "hello", "max_tokens": 3}, timeout=60)
        assert answer.status_code == 200
    assert not marker.exists()


@pytest.fixture(scope="module")
def two_tenants(tiny_file: str) -> Iterator[RunningServer[AsyncLLM]]:
    async def start() -> AsyncLLM:
        return await AsyncLLM.start(EngineConfig.from_fields({"model": tiny_file, "speculation": "off", **SETTINGS}))

    config = ServerConfig(port=0, api_key=("alice", "bob"), admin_key=("boss",), shutdown_timeout=5)
    with running_server(start, config, stop_engine=AsyncLLM.shutdown) as running:
        yield running


def ask(server: RunningServer[AsyncLLM], key: str, method: str, path: str, body: Any = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.request(method, server.url + path, json=body, headers=headers, timeout=60)


def test_what_a_request_leaves_behind_is_its_keys_alone(two_tenants: RunningServer[AsyncLLM]) -> None:
    """Sessions, ledgers, stored responses: for others, and for operators on these routes, they do not exist."""
    server = two_tenants
    completion = ask(server, "alice", "POST", "/v1/completions", {"prompt": "hello", "max_tokens": 2}).json()["id"]
    ask(server, "alice", "POST", "/v1/sessions", {"session_id": "mine", "prompt": "hello"})
    stored = ask(server, "alice", "POST", "/v1/responses", {"input": "hello", "max_output_tokens": 20, "store": True})
    places = [
        ("GET", f"/v1/requests/{completion}"),
        ("GET", "/v1/sessions/mine"),
        ("GET", f"/v1/responses/{stored.json()['id']}"),
        ("DELETE", f"/v1/responses/{stored.json()['id']}"),
        ("DELETE", "/v1/sessions/mine"),
    ]
    for method, path in places:
        assert ask(server, "bob", method, path).status_code == 404, path
        assert ask(server, "boss", method, path).status_code == 401, path
    chained = {"input": "go on", "previous_response_id": stored.json()["id"], "max_output_tokens": 20}
    assert ask(server, "bob", "POST", "/v1/responses", chained).status_code in (400, 404)
    assert ask(server, "bob", "GET", "/v1/sessions").json()["data"] == []
    for method, path in places:
        assert ask(server, "alice", method, path).status_code == 200, path


def test_a_key_ends_its_own_requests_only(two_tenants: RunningServer[AsyncLLM]) -> None:
    server = two_tenants
    body = {"prompt": "hello", "max_tokens": 700, "ignore_eos": True, "stream": True}
    headers = {"Authorization": "Bearer alice", "X-Request-Id": "of-alice"}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, headers=headers, timeout=60) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("data: {")
        for key in ("bob", "alice"):
            ended = ask(server, key, "POST", "/v1/abort", {"request_id": "of-alice"}).json()["aborted"]
            assert bool(ended) == (key == "alice")
        assert '"finish_reason":"abort"' in "".join(lines)
