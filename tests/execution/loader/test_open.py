import os
from pathlib import Path

import pytest

from octavo.errors import ModelFileError
from octavo.execution.loader import open_checkpoint
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from tests.execution.loader.gguf_pieces import sound_file


def test_content_decides_not_the_name(tmp_path: Path) -> None:
    gguf = sound_file().write(tmp_path / "model.safetensors")
    assert open_checkpoint([gguf]).format == "gguf"
    folder = write_tiny_model(tmp_path / "hf", TinyModel(), format="safetensors")
    weights = (folder / "model.safetensors").rename(folder / "model.gguf")
    assert open_checkpoint([weights]).format == "safetensors"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"PK\x03\x04....", "a zip archive"),
        (b"\x80\x02}q\x00.", "a Python pickle"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git-lfs pointer.*git lfs pull"),
        (b"<!DOCTYPE html>", "an HTML or XML page"),
        (b"tjggxxxx", "the format before GGUF"),
        (b"hello world", "neither GGUF nor safetensors"),
    ],
)
def test_foreign_files(tmp_path: Path, content: bytes, kind: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=kind) as caught:
        open_checkpoint([path])
    assert (caught.value.path, caught.value.offset) == (str(path), 0)


def test_a_gguf_and_a_foreign_part(tmp_path: Path) -> None:
    good = sound_file().write(tmp_path / "good.gguf")
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"PK\x03\x04")
    with pytest.raises(ModelFileError, match="not a GGUF file"):
        open_checkpoint([good, bad])


def test_files_that_cannot_be_mapped(tmp_path: Path) -> None:
    empty, pipe = tmp_path / "empty", tmp_path / "pipe"
    empty.touch()
    os.mkfifo(pipe)
    for path, message in (
        (tmp_path / "absent", "no such file"),
        (tmp_path, "folder or device"),
        (empty, "the file is empty"),
        (pipe, "folder or device"),
        (empty / "below", "cannot be read"),
    ):
        with pytest.raises(ModelFileError, match=message) as caught:
            open_checkpoint([path])
        assert caught.value.path == str(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(tmp_path: Path) -> None:
    path = sound_file().write(tmp_path / "m.gguf")
    path.chmod(0)
    with pytest.raises(ModelFileError, match=r"cannot be read .*check its permissions"):
        open_checkpoint([path])


def test_no_files() -> None:
    with pytest.raises(ModelFileError, match="no model file was given"):
        open_checkpoint([])
