"""Whether the native module was built from the interface that these Python files use. The module asks when it is
imported, so that one left over from another version says so at once."""

import hashlib
from pathlib import Path

STUB = Path(__file__).with_name("_native.pyi")
"""The interface, as far as Python knows it: whatever is added or changed there stands here, too."""


def mismatch(built_from: str) -> str | None:
    """What is wrong with a module built from the stub of this sha256; None if nothing is, or the stub is not here."""
    if not STUB.exists():
        return None
    here = hashlib.sha256(STUB.read_bytes()).hexdigest()
    if built_from == here:
        return None
    built, wanted = built_from[:12], here[:12]
    fix = "build it anew with scripts/build-native (a checkout), or reinstall octavo"
    return f"octavo._native was built from another version (interface {built}, these files need {wanted}): {fix}"
