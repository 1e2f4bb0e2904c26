import errno
import json
import os
from pathlib import Path

import platformdirs
import pytest

from octavo.hub.cache import (
    Cache,
    CachedFile,
    CacheError,
    Entry,
    cache_key,
    default_root,
    describe_file,
    disk_errors,
    make_folder,
    require_space,
)
from tests.hub.fakes import GGUF


def publish(cache: Cache, key: str = "m", content: bytes = GGUF) -> Entry:
    staging = cache.staging(key, "source")
    (staging / "m.gguf").write_bytes(content)
    entry = Entry("source", "gguf", (describe_file(staging / "m.gguf", staging),))
    cache.publish(key, staging, entry)
    return entry


def test_an_entry_is_found_as_it_was_published(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.find("m") is None
    entry = publish(cache)
    assert cache.find("m") == entry
    assert cache.is_intact("m", entry)
    files = cache.model_files("m", "the name", entry)
    assert (files.name, files.files, files.sha256) == (
        "the name",
        (tmp_path / "models/m/m.gguf",),
        entry.weights[0].sha256,
    )
    assert not (tmp_path / "staging/m").exists()


def test_publishing_again_replaces_the_entry(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    publish(cache)
    entry = publish(cache, content=GGUF + b"new")
    assert cache.find("m") == entry


@pytest.mark.parametrize("damage", ["gone", "short", "folder", "no manifest"])
def test_an_incomplete_entry_is_none(tmp_path: Path, damage: str) -> None:
    cache = Cache(tmp_path)
    publish(cache)
    path = tmp_path / "models/m/m.gguf"
    if damage == "short":
        path.write_bytes(GGUF[:-1])
    elif damage == "no manifest":
        (path.parent / ".octavo.json").unlink()
    else:
        path.unlink()
        if damage == "folder":
            path.mkdir()
    assert cache.find("m") is None


@pytest.mark.parametrize(
    "manifest",
    ["", "[]", "{}", '{"weights": 3, "others": []}', '{"source": "s", "kind": "gguf", "weights": [], "others": []}',
     '{"source": "s", "kind": "exe", "weights": [{"name": "m.gguf", "size": 204, "sha256": ""}], "others": []}',
     '{"source": "s", "kind": "gguf", "weights": [{"nom": "m.gguf"}], "others": []}'],
)  # fmt: skip
def test_a_manifest_that_does_not_read_is_none(tmp_path: Path, manifest: str) -> None:
    cache = Cache(tmp_path)
    publish(cache)
    (tmp_path / "models/m/.octavo.json").write_text(manifest)
    assert cache.find("m") is None


def test_changed_bytes_of_the_same_length_are_seen_by_the_hash_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    entry = publish(cache)
    (tmp_path / "models/m/m.gguf").write_bytes(GGUF[:-1] + b"?")
    assert cache.find("m") == entry
    assert not cache.is_intact("m", entry)


def test_a_file_where_the_cache_should_be(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("")
    assert Cache(tmp_path).find("m") is None
    (tmp_path / "staging").write_text("")
    with pytest.raises(CacheError, match=r"cannot write to the cache .*/staging/m/.*point OCTAVO_CACHE to a folder"):
        Cache(tmp_path).staging("m", "source")


def test_keys_are_readable_and_distinct() -> None:
    names = [
        "smollm2-135m",
        "org/name",
        "org--name",
        "org/name@v1",
        "pypi:a==1",
        "../../etc",
        "ä",
        "ö",
        "x" * 300 + "/",
    ]
    keys = [cache_key(name) for name in names]
    assert len(set(keys)) == len(names)
    assert keys[0] == "smollm2-135m"
    assert keys[1].startswith("org--name--")
    assert all("/" not in key and len(key) < 120 and key not in (".", "..") for key in keys)


def test_default_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "c"))
    assert default_root() == tmp_path / "c"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OCTAVO_CACHE", "rel")
    assert default_root() == tmp_path / "rel"
    for unset in ("", None):
        if unset is None:
            monkeypatch.delenv("OCTAVO_CACHE")
        else:
            monkeypatch.setenv("OCTAVO_CACHE", unset)
        assert default_root() == Path(platformdirs.user_cache_dir("octavo"))


def test_require_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_space(tmp_path, 1, "x")
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("usage", (), {"free": 5_000_000}))
    require_space(tmp_path, 5_000_000, "x")
    with pytest.raises(
        CacheError, match=rf"big needs 6 MB on the disk of {tmp_path}, 5 MB are free; make room, or point"
    ):
        require_space(tmp_path, 6_000_000, "big")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk(tmp_path: Path, number: int) -> None:
    with pytest.raises(CacheError, match=rf"the disk of {tmp_path} is full"), disk_errors(tmp_path):
        raise OSError(number, os.strerror(number))


def test_unwritable_folder(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match=r"cannot write to the cache .* \(Not a directory\)"):
        (tmp_path / "file").write_text("")
        make_folder(tmp_path / "file/below")


def test_manifest_is_plain_json(tmp_path: Path) -> None:
    entry = publish(Cache(tmp_path))
    stored = json.loads((tmp_path / "models/m/.octavo.json").read_text())
    file: CachedFile = entry.weights[0]
    assert stored["weights"] == [{"name": "m.gguf", "size": len(GGUF), "sha256": file.sha256}]
    assert stored["source"] == "source"
