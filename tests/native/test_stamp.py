"""A native module from another version of the Python files says so when it is imported."""

import subprocess
import sys
from pathlib import Path

import octavo
from octavo import _native, native_stamp

COPY = """
import sys
sys.path.insert(0, sys.argv[1])
try:
    from octavo import _native
except ImportError as error:
    print(error)
"""


def test_the_module_that_is_here_fits() -> None:
    assert "interface" in str(native_stamp.mismatch("0" * 64))
    assert _native.available_isas()


def test_a_stale_module_is_refused_with_the_fix(tmp_path: Path) -> None:
    """The package as it is, but for one more line in the stub: as after an update without a build."""
    source, copy = Path(octavo.__file__).parent, tmp_path / "octavo"
    copy.mkdir()
    for name in ("__init__.py", "native_stamp.py", Path(str(_native.__file__)).name):
        (copy / name).symlink_to(source / name)
    (copy / "_native.pyi").write_text((source / "_native.pyi").read_text() + "\ndef new() -> None: ...\n")
    (copy / "native_stamp.py").unlink()
    (copy / "native_stamp.py").write_text((source / "native_stamp.py").read_text())
    done = subprocess.run([sys.executable, "-P", "-c", COPY, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "octavo._native was built from another version" in done.stdout
    assert "scripts/build-native" in done.stdout
