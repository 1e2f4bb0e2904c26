"""The architecture lint: this repository passes it, and each kind of offence is found."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT = ROOT / "scripts" / "check-imports"


def lint(root: Path) -> list[str]:
    """The lint's lines for a checkout."""
    done = subprocess.run([sys.executable, str(LINT), str(root)], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert done.returncode == (1 if lines else 0)
    return lines


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_this_repository_keeps_the_law() -> None:
    assert lint(ROOT) == []


@pytest.mark.parametrize(
    ("file", "content", "offence"),
    [
        (
            "src/octavo/server/x.py",
            "from octavo.execution.runner import Runner\n",
            "server must not import octavo.execution",
        ),
        ("src/octavo/server/x.py", "import octavo.scheduling.scheduler\n", "server must not import octavo.scheduling"),
        ("src/octavo/server/x.py", "from octavo import kv\n", "server must not import octavo.kv"),
        ("src/octavo/server/x.py", "from ..kv import manager\n", "server must not import octavo.kv"),
        (
            "src/octavo/scheduling/x.py",
            "def f():\n    import octavo.engine.core\n",
            "scheduling must not import octavo.engine",
        ),
        (
            "src/octavo/execution/x.py",
            "from octavo.kv.manager import KVManager\n",
            "execution must not import octavo.kv.manager",
        ),
        ("src/octavo/execution/x.py", "from octavo.kv import spec, manager\n", "execution must not import octavo.kv"),
        (
            "src/octavo/decoding/x.py",
            "from octavo.execution.runner import R\n",
            "decoding must not import octavo.execution.runner",
        ),
        ("src/octavo/request/x.py", "import numpy as np\n", "request must not contain numpy"),
        ("src/octavo/kv/x.py", "from time import monotonic\n", "kv must not contain time"),
        ("src/octavo/kv/x.py", "import socket\n", "kv must not contain socket"),
        ("src/octavo/scheduling/x.py", "import time\n", "scheduling must not contain time"),
        ("src/octavo/scheduling/x.py", "open('x')\n", "no input or output: open()"),
        ("src/octavo/model/x.py", "from octavo import _native\n", "model must not contain octavo._native"),
        ("src/octavo/model/x.py", "import octavo._native\n", "model must not contain octavo._native"),
        ("src/octavo/engine/x.py", "import torch\n", "torch belongs only in"),
        ("src/octavo/execution/x.py", "import torch.nn\n", "torch belongs only in"),
        ("src/octavo/config.py", "from octavo.engine import core\n", "the foundation imports octavo.engine"),
        (
            "src/octavo/server/x.py",
            "from octavo.engine.llm import _hidden\n",
            "_hidden is private to octavo.engine.llm",
        ),
        ("src/octavo/attic/x.py", "", "room 'attic' has no law"),
        (
            "src/octavo/scheduling/x.py",
            "def run_on_cuda(): ...\n",
            "scheduling speaks of a device or model: run_on_cuda",
        ),
        ("src/octavo/kv/x.py", "class LlamaBlocks: ...\n", "kv speaks of a device or model: LlamaBlocks"),
        ("src/octavo/kv/x.py", "x = 1\n" * 601, "601 lines; at most 600"),
        ("csrc/x.cpp", "int x;\n" * 601, "601 lines; at most 600"),
        ("src/octavo/kv/x.py", "def long():\n" + "    x = 1\n" * 80, "long has 81 lines; at most 80"),
    ],
)
def test_each_offence_is_found(tmp_path: Path, file: str, content: str, offence: str) -> None:
    lines = lint(write(tmp_path, {file: content}))
    assert len(lines) == 1
    assert file in lines[0]
    assert offence in lines[0]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (
            "src/octavo/execution/x.py",
            "from octavo.kv.spec import KVLayout\nfrom octavo.scheduling.plan import StepPlan\n",
        ),
        ("src/octavo/execution/x.py", "from octavo.kv import spec\nimport numpy\n"),
        ("src/octavo/execution/cuda/x.py", "import torch\n"),
        ("src/octavo/server/x.py", "from octavo.errors import OctavoError\nfrom octavo.engine.llm import AsyncLLM\n"),
        ("src/octavo/engine/x.py", "from octavo import _native\nimport time\nnum_output_tokens = 1\n"),
        ("src/octavo/cli/x.py", "from octavo.kv.manager import KVManager\n"),
        ("src/octavo/kv/x.py", "def exact():\n" + "    x = 1\n" * 79),
    ],
)
def test_what_is_allowed_passes(tmp_path: Path, file: str, content: str) -> None:
    assert lint(write(tmp_path, {file: content})) == []


def test_cycles(tmp_path: Path) -> None:
    files = {
        "src/octavo/engine/a.py": "from octavo.engine import b\n",
        "src/octavo/engine/b.py": "from octavo.engine.c import thing\n",
        "src/octavo/engine/c.py": "from octavo.engine.a import other\n",
    }
    (line,) = lint(write(tmp_path, files))
    assert line == "import cycle: octavo.engine.a -> octavo.engine.b -> octavo.engine.c -> octavo.engine.a"


def test_an_import_for_types_or_inside_a_function_makes_no_cycle(tmp_path: Path) -> None:
    files = {
        "src/octavo/engine/a.py": "from octavo.engine import b\n",
        "src/octavo/engine/b.py": (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from octavo.engine import a\n"
        ),
        "src/octavo/engine/c.py": "from octavo.engine import a\n",
        "src/octavo/engine/__init__.py": "def f():\n    from octavo.engine import c\n",
    }
    assert lint(write(tmp_path, files)) == []
