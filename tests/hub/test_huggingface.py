import errno
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from octavo.errors import DownloadError, ModelNotFoundError
from octavo.hub.cache import CacheError
from octavo.hub.huggingface import HuggingFaceHub, RepoFile, choose_files, fetch_repo
from octavo.hub.names import RepoName
from tests.hub.fakes import GGUF, FakeHub, Recorder

FOLDER = {
    "config.json": b"{}", "model.safetensors": b"weights", "tokenizer.json": b"{}", "README.md": b"",
    "original/consolidated.safetensors": b"big", "adapter_config.json": b"{}", "pytorch_model.bin": b"pickle",
    "chat_template.jinja": b"{{}}",
}  # fmt: skip
MODEL = RepoName("org/m", None, None)


def listed(*paths: str) -> list[RepoFile]:
    return [RepoFile(path, 1) for path in paths]


def chosen(name: RepoName, *paths: str) -> list[str]:
    return [file.path for file in choose_files(name, listed(*paths))]


def test_a_safetensors_model_without_what_is_not_needed() -> None:
    assert chosen(MODEL, *FOLDER) == ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"]


def test_weights_that_are_there_twice_come_once() -> None:
    usual = ["config.json", "model-1.safetensors", "model.safetensors.index.json"]
    assert chosen(MODEL, "consolidated.safetensors", *usual) == usual
    assert chosen(MODEL, "config.json", "consolidated.safetensors") == ["config.json", "consolidated.safetensors"]


def test_the_only_gguf() -> None:
    assert chosen(MODEL, "README.md", "config.json", "x.gguf") == ["x.gguf"]
    parts = ["q4/x-00001-of-00002.gguf", "q4/x-00002-of-00002.gguf"]
    assert chosen(MODEL, *parts) == parts


def test_a_named_gguf_wins_over_safetensors() -> None:
    assert chosen(RepoName("org/m", None, "x.gguf"), *FOLDER, "x.gguf", "y.gguf") == ["x.gguf"]
    named = RepoName("org/m", None, "q4/x-00001-of-00002.gguf")
    parts = ["q4/x-00001-of-00002.gguf", "q4/x-00002-of-00002.gguf"]
    assert chosen(named, *parts, "y.gguf") == parts


@pytest.mark.parametrize(
    ("name", "paths", "message"),
    [
        (MODEL, ["a.gguf", "b.gguf"], "holds several models; choose one: org/m:a.gguf, org/m:b.gguf"),
        (
            MODEL,
            ["README.md", "pytorch_model.bin"],
            r"holds no model that Octavo reads \(no \*.safetensors with config",
        ),
        (MODEL, ["model.safetensors"], "holds no model"),
        (RepoName("org/m", None, "c.gguf"), ["a.gguf"], "org/m has no c.gguf; it has org/m:a.gguf"),
        (RepoName("org/m", None, "c.gguf"), ["x"], "org/m has no c.gguf; it has no .gguf file"),
        (RepoName("org/m", None, "x-00001-of-00002.gguf"), ["x-00001-of-00002.gguf"], "has no x-00002-of-00002.gguf"),
    ],
)
def test_choices_that_are_open_or_wrong(name: RepoName, paths: list[str], message: str) -> None:
    with pytest.raises(ModelNotFoundError, match=message):
        chosen(name, *paths)


def test_fetch(tmp_path: Path) -> None:
    hub, progress = FakeHub({"org/m": FOLDER}), Recorder()
    paths = fetch_repo(hub, RepoName("org/m", "v2", None), tmp_path, progress)
    assert {path.name: path.read_bytes() for path in paths} == {name: FOLDER[name] for name in hub.asked}
    assert hub.revisions == ["v2"]
    assert {path.name for path in tmp_path.iterdir()} == set(hub.asked)
    assert progress.updates[-1] == ("org/m", 15, 15)


def test_a_fetch_goes_on_with_the_files_that_are_missing(tmp_path: Path) -> None:
    hub = FakeHub({"org/m": FOLDER}, failing={"tokenizer.json"})
    with pytest.raises(DownloadError, match="out of reach"):
        fetch_repo(hub, MODEL, tmp_path, Recorder())
    hub.failing, hub.asked = set(), []
    fetch_repo(hub, MODEL, tmp_path, Recorder())
    assert hub.asked == ["tokenizer.json", "chat_template.jinja"]


def test_files_of_another_commit_are_fetched_again(tmp_path: Path) -> None:
    hub = FakeHub({"org/m": FOLDER}, failing={"tokenizer.json"})
    with pytest.raises(DownloadError):
        fetch_repo(hub, MODEL, tmp_path, Recorder())
    hub.failing, hub.asked, hub.commit = set(), [], "beef"
    fetch_repo(hub, MODEL, tmp_path, Recorder())
    assert "model.safetensors" in hub.asked


def test_a_damaged_file_is_refused_and_forgotten(tmp_path: Path) -> None:
    hub = FakeHub({"org/m": FOLDER}, damage={"model.safetensors"})
    with pytest.raises(DownloadError, match=r"org/m/model.safetensors arrived damaged"):
        fetch_repo(hub, MODEL, tmp_path, Recorder())
    assert not (tmp_path / "model.safetensors").exists()
    hub.damage = set()
    fetch_repo(hub, MODEL, tmp_path, Recorder())


def test_a_partial_file_left_by_a_crash_is_not_trusted(tmp_path: Path) -> None:
    hub = FakeHub({"org/m": {"x.gguf": GGUF}}, failing={"x.gguf"})
    with pytest.raises(DownloadError):
        fetch_repo(hub, MODEL, tmp_path, Recorder())
    (tmp_path / "x.gguf").write_bytes(b"?" * len(GGUF))
    hub.failing = set()
    assert fetch_repo(hub, MODEL, tmp_path, Recorder())[0].read_bytes() == GGUF


def test_a_file_without_a_known_hash_must_at_least_have_its_size(tmp_path: Path) -> None:
    class Hashless(FakeHub):
        def listing(self, repo: str, revision: str | None) -> tuple[str, list[RepoFile]]:
            return "c0ffee", [RepoFile("x.gguf", len(GGUF) + 1)]

    with pytest.raises(DownloadError, match=r"org/m/x.gguf arrived damaged \(size or sha256 differ"):
        fetch_repo(Hashless({"org/m": {"x.gguf": GGUF}}), MODEL, tmp_path, Recorder())


def test_full_disk_below_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    class Listed(HuggingFaceHub):
        def listing(self, repo: str, revision: str | None) -> tuple[str, list[RepoFile]]:
            return COMMIT, [RepoFile("x.gguf", 1)]

    monkeypatch.setattr("huggingface_hub.hf_hub_download", full)
    with pytest.raises(CacheError, match="is full; make room"):
        fetch_repo(Listed(), MODEL, tmp_path, Recorder())


def test_paths_that_would_leave_the_folder_are_not_fetched(tmp_path: Path) -> None:
    hub = FakeHub({"org/m": {"../evil.gguf": GGUF, "/abs.gguf": GGUF, "good.gguf": GGUF}})
    fetch_repo(hub, MODEL, tmp_path, Recorder())
    assert hub.asked == ["good.gguf"]


# --- the real client against a hub on the loopback ---------------------------------------------------------------

COMMIT = "c" * 40
SMALL, LARGE = b'{"a": 1}', GGUF * 50


def git_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """The few routes of the hub's API that a download needs."""

    sent: ClassVar = {"config.json": SMALL, "model.safetensors": LARGE}

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path in ("/api/models/org/m", f"/api/models/org/m/revision/{COMMIT}"):
            self.reply(200, json.dumps({"id": "org/m", "sha": COMMIT, "siblings": self.siblings()}).encode())
        elif path.startswith(f"/org/m/resolve/{COMMIT}/"):
            content = self.sent[path.rpartition("/")[2]]
            self.reply(200, content, ETag=f'"{git_id(content)}"', **{"X-Repo-Commit": COMMIT})
        elif path.startswith("/api/models/org/gated"):
            self.reply(403, b"", **{"X-Error-Code": "GatedRepo"})
        elif path.startswith("/api/models/org/m/revision"):
            self.reply(404, b"", **{"X-Error-Code": "RevisionNotFound"})
        else:
            self.reply(404, b"", **{"X-Error-Code": "RepoNotFound"})

    def siblings(self) -> list[dict[str, object]]:
        small = {"rfilename": "config.json", "size": len(SMALL), "blobId": git_id(SMALL)}
        lfs = {"size": len(LARGE), "sha256": hashlib.sha256(LARGE).hexdigest(), "pointerSize": 100}
        return [small, {"rfilename": "model.safetensors", "size": len(LARGE), "blobId": "pointer", "lfs": lfs}]

    def reply(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), "Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HuggingFaceHub]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield HuggingFaceHub(f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    thread.join()
    server.server_close()


def test_real_client_fetches_and_checks(hub: HuggingFaceHub, tmp_path: Path) -> None:
    commit, files = hub.listing("org/m", None)
    assert commit == COMMIT
    assert files == [
        RepoFile("config.json", len(SMALL), None, git_id(SMALL)),
        RepoFile("model.safetensors", len(LARGE), hashlib.sha256(LARGE).hexdigest(), None),
    ]
    paths = fetch_repo(hub, MODEL, tmp_path, Recorder())
    assert [path.read_bytes() for path in paths] == [SMALL, LARGE]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_real_client_that_receives_something_else(
    hub: HuggingFaceHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    content = Handler.sent[file]
    monkeypatch.setitem(Handler.sent, file, content[:-1] + b"?")
    with pytest.raises(DownloadError, match=f"org/m/{file} arrived damaged"):
        fetch_repo(hub, MODEL, tmp_path, Recorder())


@pytest.mark.parametrize(
    ("repo", "revision", "error", "message"),
    [
        ("org/none", None, ModelNotFoundError, "the hub has no org/none, or it is private"),
        ("org/m", "v9", ModelNotFoundError, "org/m has no revision 'v9'; check the name after the @"),
        ("org/gated", None, DownloadError, "org/gated asks for consent: accept its terms on the hub"),
    ],
)
def test_real_client_errors(
    hub: HuggingFaceHub, repo: str, revision: str | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        hub.listing(repo, revision)


def test_no_network(tmp_path: Path) -> None:
    nowhere = HuggingFaceHub("http://127.0.0.1:1")
    with pytest.raises(DownloadError, match=r"cannot reach the hub for org/m \(.*refused.*\); check the network"):
        fetch_repo(nowhere, MODEL, tmp_path, Recorder())
