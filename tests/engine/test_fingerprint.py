"""The numerics fingerprint changes with what changes bits, with nothing else, and is the same everywhere."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from octavo.engine import fingerprint
from octavo.engine.fingerprint import Computed, numerics_fingerprint, weights_name
from octavo.execution.loader import open_checkpoint
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from octavo.execution.quant import TensorType
from octavo.execution.weights import LoadedWeight, load_model
from octavo.hub.files import ModelFiles
from octavo.kv.spec import AttentionSpec, KVDtype, KVLayout, lay_out
from octavo.model.program import Program

Model = tuple[Program, dict[str, LoadedWeight]]


def loaded(path: Path, **choices: object) -> Model:
    return load_model(open_checkpoint([write_tiny_model(path, TinyModel(**choices), format="gguf")]))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return loaded(tmp_path_factory.mktemp("model") / "a.gguf")


def layout(program: Program, num_blocks: int = 8, block_size: int = 16, dtype: KVDtype = KVDtype.FP16) -> KVLayout:
    specs = tuple(
        AttentionSpec(num_kv_heads=c.kv_heads, head_dim=c.head_dim, window=c.window) for c in program.cache_layers
    )
    return lay_out(specs, num_blocks=num_blocks, block_size=block_size, dtype=dtype)


def of(model: Model, **choices: object) -> str:
    program, weights = model
    kv_layout = choices.pop("layout", layout(program))
    executor, name = choices.pop("executor", "native"), choices.pop("name", "weights")
    second = choices.pop("second", None)
    assert not choices
    return numerics_fingerprint(Computed(name, program, weights), kv_layout, executor, second)  # type: ignore[arg-type]


def test_it_changes_with_what_changes_bits(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, weights = model
    other_rope = replace(program, ropes=tuple(replace(rope, magnitude=1.5) for rope in program.ropes))
    fewer_ops = replace(program, ops=program.ops[:-1])
    base = of(model)
    others = {
        "weights": of(model, name="other"),
        "executor": of(model, executor="reference"),
        "dtype": of(model, layout=layout(program, dtype=KVDtype.BF16)),
        "scaled": of(model, layout=layout(program, dtype=KVDtype.INT8)),
        "block size": of(model, layout=layout(program, block_size=32)),
        "rope": of((other_rope, weights)),
        "rope base": of(loaded(tmp_path / "rope.gguf", rope_base=5000.0)),
        "ops": of((fewer_ops, weights)),
        "linear methods": of(loaded(tmp_path / "q8.gguf", tensor_type=TensorType.Q8_0)),
        "family": of(loaded(tmp_path / "qwen.gguf", architecture="qwen2")),
        "second model": of(model, second=Computed("second", program, weights)),
        "another second model": of(model, second=Computed("third", program, weights)),
        "second model of other ops": of(model, second=Computed("second", fewer_ops, weights)),
        "placement": of(model, layout=msgspec.structs.replace(layout(program), placement=((0, 1), (0, 0)))),
    }
    monkeypatch.setattr(fingerprint, "NUMERICS_VERSION", fingerprint.NUMERICS_VERSION + 1)
    others["version"] = of(model)
    assert len({base, *others.values()}) == 1 + len(others)


def test_it_does_not_change_with_what_changes_no_bit(model: Model) -> None:
    program, weights = model
    renamed = replace(program, name="other", notes={}, max_positions=64)
    assert of((renamed, weights)) == of(model)
    assert of(model, layout=layout(program, num_blocks=99)) == of(model)
    assert of((program, dict(reversed(weights.items())))) == of(model)


def test_two_processes_agree(model: Model, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.engine.test_fingerprint import loaded, of\n"
        "print(of(loaded(Path(sys.argv[1]))))"
    )
    for seed in ("1", "2"):
        command = [sys.executable, "-c", script, str(tmp_path / f"{seed}.gguf")]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        said = subprocess.run(
            command, env=environment, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
        )
        assert said.stdout.strip() == of(model)


def files(*paths: Path, known: str | None = None) -> ModelFiles:
    return ModelFiles(name="m", kind="gguf", folder=paths[0].parent, files=paths, sha256=known)


@pytest.mark.parametrize("count", [1, 3])
def test_a_lasting_name_is_of_bytes_alone(count: int, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    paths = [tmp_path / f"part{number}" for number in range(count)]
    for path in paths:
        path.write_bytes(os.urandom(1000))
    copies = [Path(shutil.copy(path, tmp_path / "copy" / f"other-{path.name}")) for path in paths]
    name = weights_name(files(*paths), lasting=True)
    assert weights_name(files(*copies), lasting=True) == name
    assert weights_name(files(*copies), lasting=False) != weights_name(files(*paths), lasting=False)
    if count > 1:
        assert weights_name(files(*paths[::-1]), lasting=True) != name
    data = bytearray(copies[-1].read_bytes())
    data[500] ^= 1
    copies[-1].write_bytes(data)
    assert weights_name(files(*copies), lasting=True) != name


def test_a_name_that_the_hub_knows_is_the_one_that_would_be_read(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"w" * 1000)
    known = files(path, known=sha256(b"w" * 1000).hexdigest())
    assert weights_name(known, lasting=False) == weights_name(known, lasting=True)
    assert weights_name(known, lasting=False) == weights_name(files(path), lasting=True)


def test_the_file_is_read_only_for_a_lasting_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    original: Callable[[Path], str] = fingerprint.sha256_of
    monkeypatch.setattr(fingerprint, "sha256_of", lambda path: (read.append(path), original(path))[1])
    path = tmp_path / "weights"
    path.write_bytes(b"w")
    weights_name(files(path), lasting=False)
    assert not read
    weights_name(files(path), lasting=True)
    assert read == [path]
