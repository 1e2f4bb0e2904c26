"""The example package, installed for the tests of this folder."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.model_plugin.example import EXAMPLE


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that pip has installed the package into, from nothing but what is on this disk."""
    source = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("source") / "model_plugin")  # a build writes beside it
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
