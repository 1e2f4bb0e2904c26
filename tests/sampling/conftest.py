"""Models and plug-ins of the oracle's tests."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.execution.loader.tiny.write import write_tiny_model

Install = Callable[..., None]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A two-layer llama with random weights, as a GGUF file."""
    return str(write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf"))


def write_package(folder: Path, package: str, source: str, **processors: str) -> Path:
    """A package as pip leaves it: a module and its metadata, with entry points. The folder belongs on the path."""
    info = folder / package / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / package / f"{package}.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in processors.items()]
    (info / "entry_points.txt").write_text("\n".join(["[octavo.logits_processors]", *lines]) + "\n")
    return folder / package


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package on the path of this process and its children: install(package, source, name="module:object")."""

    def install(package: str, source: str, **processors: str) -> None:
        monkeypatch.syspath_prepend(str(write_package(tmp_path, package, source, **processors)))
        monkeypatch.delitem(sys.modules, package, raising=False)

    return install
