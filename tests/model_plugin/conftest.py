"""The example package, installed for the tests of this folder."""

import shutil
import subprocess
import sys
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path

import pytest

from tests.model_plugin.example import EXAMPLE


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that pip has installed the package into, from nothing but what is on this disk."""
    # A build writes beside the source, and uses again what an earlier one left there.
    left = shutil.ignore_patterns("build", "*.egg-info")
    source = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("source") / "model_plugin", ignore=left)
    folder = tmp_path_factory.mktemp("installed")
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", "-q", *offline, "--target", str(folder), str(source)]
    subprocess.run(command, check=True, timeout=240)
    return folder


@pytest.fixture
def installed(target: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package on the path of this process."""
    monkeypatch.syspath_prepend(str(target))
    monkeypatch.delitem(sys.modules, "octavo_stablelm", raising=False)
    return target


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package brings the family, though readers of the page have one in their environment."""

    def others(group: str) -> EntryPoints:
        return EntryPoints(point for point in entry_points(group=group) if point.name != "stablelm")

    monkeypatch.setattr("octavo.model.registry.entry_points", others)
