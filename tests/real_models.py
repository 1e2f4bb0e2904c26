"""Real models for tests: found in the project's own cache, never fetched."""

import os
from pathlib import Path

import pytest

from octavo.hub import find_cached


def model_path(alias: str) -> Path:
    """The file of a model that `octavo pull ALIAS` has put into the cache.

    A test that needs a model which is not there skips with that reason, or fails under OCTAVO_REQUIRE_MODELS=1.
    """
    path = find_cached(alias)
    if path is not None:
        return path
    reason = f"model {alias} is not in the cache; fetch it with: octavo pull {alias}"
    if os.environ.get("OCTAVO_REQUIRE_MODELS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
