"""One server with a real engine for all that is done to it here."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from octavo.execution.loader.tiny import write_tiny_model
from tests.end_to_end.conftest import serving
from tests.server.conftest import quick_httpx  # noqa: F401 - an autouse fixture


@pytest.fixture(scope="package")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server over a model with random weights, which can chat."""
    file = write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf")
    with serving(str(file), served_model_name=("tiny",), max_num_batched_tokens=256) as server:
        yield server.url


@pytest.fixture(scope="package")
def description(url: str) -> dict[str, Any]:
    """What the server says of itself."""
    answer: dict[str, Any] = httpx.get(f"{url}/openapi.json").json()
    return answer
