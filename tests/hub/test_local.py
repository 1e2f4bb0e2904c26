import json
import os
from pathlib import Path

import pytest

from octavo.errors import ModelFileError, ModelNotFoundError
from octavo.hub import resolve
from octavo.hub.local import gguf_choices
from tests.hub.fakes import GGUF

SAFETENSORS = b"\x02\0\0\0\0\0\0\0{}"


def test_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "any.bin"
    path.write_bytes(GGUF)
    model = resolve(str(path))
    assert (model.name, model.kind, model.folder, model.files) == (str(path), "gguf", tmp_path, (path,))
    assert model.sha256 is None


def test_safetensors_file_and_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(SAFETENSORS)
    (tmp_path / "consolidated.safetensors").write_bytes(SAFETENSORS)
    for name in (str(weights), str(tmp_path)):
        model = resolve(name)
        assert (model.kind, model.folder, model.files) == ("safetensors", tmp_path, (weights,))


def test_sharded_folder_takes_the_shards_of_its_index(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for name in ("a", "b", "consolidated"):
        (tmp_path / f"{name}.safetensors").write_bytes(SAFETENSORS)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "b.safetensors", "y": "a.safetensors", "z": "b.safetensors"}}))
    assert [path.name for path in resolve(str(tmp_path)).files] == ["a.safetensors", "b.safetensors"]
    (tmp_path / "a.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"missing shards: a.safetensors; fetch them"):
        resolve(str(tmp_path))


@pytest.mark.parametrize("index", ["{", "[]", "{}", '{"weight_map": [1]}', '{"weight_map": null}'])
def test_broken_index(tmp_path: Path, index: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ModelFileError, match="not a safetensors index"):
        resolve(str(tmp_path))


def parts(folder: Path, stem: str = "m", count: int = 3) -> list[Path]:
    paths = [folder / f"{stem}-{n:05}-of-{count:05}.gguf" for n in range(1, count + 1)]
    for path in paths:
        path.write_bytes(GGUF)
    return paths


def test_split_gguf_from_any_part_or_its_folder(tmp_path: Path) -> None:
    paths = parts(tmp_path)
    for name in (*map(str, paths), str(tmp_path)):
        assert resolve(name).files == tuple(paths)


def test_split_gguf_with_a_missing_part(tmp_path: Path) -> None:
    paths = parts(tmp_path)
    paths[1].unlink()
    for name in (str(paths[0]), str(tmp_path)):
        with pytest.raises(ModelFileError, match=r"parts are missing beside it: m-00002-of-00003.gguf; put all in one"):
            resolve(name)


def test_folder_with_one_gguf(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(GGUF)
    (tmp_path / "README.md").write_text("")
    assert resolve(str(tmp_path)).files == (tmp_path / "x.gguf",)


def test_folder_with_several_models(tmp_path: Path) -> None:
    (tmp_path / "b.gguf").write_bytes(GGUF)
    parts(tmp_path, "a", 2)
    with pytest.raises(
        ModelNotFoundError, match=r"several models in this folder, name one: a-00001-of-00002.gguf, b.gguf"
    ):
        resolve(str(tmp_path))


def test_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"neither \*.safetensors nor \*.gguf; give a Hugging Face"):
        resolve(str(tmp_path))
    (tmp_path / "x.safetensors").write_bytes(SAFETENSORS)
    with pytest.raises(ModelNotFoundError, match=r"\*.safetensors, but no config.json"):
        resolve(str(tmp_path))


def test_folder_with_pickled_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    with pytest.raises(ModelNotFoundError, match=r"are pickled \(pytorch_model.bin\).*Octavo reads safetensors"):
        resolve(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(SAFETENSORS)
    assert resolve(str(tmp_path)).files == (tmp_path / "model.safetensors",)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    text, pipe = tmp_path / "x.gguf", tmp_path / "pipe"
    text.write_bytes(b"hello world")
    os.mkfifo(pipe)
    with pytest.raises(ModelFileError, match="neither GGUF nor safetensors: it starts with b'hello wo'"):
        resolve(str(text))
    with pytest.raises(ModelFileError, match="is no regular file"):
        resolve(str(pipe))


def test_choices_name_each_model_once() -> None:
    names = ["q4/m-00002-of-00002.gguf", "q4/m-00001-of-00002.gguf", "q8.gguf", "config.json"]
    assert gguf_choices(names) == ["q4/m-00001-of-00002.gguf", "q8.gguf"]
