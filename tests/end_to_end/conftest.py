"""Real engines behind real servers: a tiny model with random weights, and SmolLM2."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import openai
import pytest

from octavo import LLM, AsyncLLM
from octavo.config import EngineConfig, ServerConfig
from octavo.execution.loader.tiny import write_tiny_model
from tests.real_models import model_path
from tests.server.conftest import quick_httpx  # noqa: F401 - an autouse fixture
from tests.server.running import RunningServer, running_server

SETTINGS: dict[str, Any] = {"threads": 1, "max_model_len": 768, "num_kv_blocks": 500, "max_num_batched_tokens": 64}


@dataclass
class Served:
    """A model behind a server, and the same model in this process."""

    name: str
    file: str
    server: RunningServer[AsyncLLM]

    @cached_property
    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.server.url}/v1", api_key="none", max_retries=0, timeout=120)

    @cached_property
    def local(self) -> LLM:
        """In-process twin with the same settings."""
        return LLM(self.file, **SETTINGS)


@contextmanager
def serving(file: str, **settings: Any) -> Iterator[RunningServer[AsyncLLM]]:
    """A server over a real engine core."""

    async def start() -> AsyncLLM:
        return await AsyncLLM.start(EngineConfig.from_fields({"model": file, **SETTINGS, **settings}))

    with running_server(start, ServerConfig(port=0, shutdown_timeout=5), stop_engine=AsyncLLM.shutdown) as running:
        yield running


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A two-layer llama with random weights."""
    return str(write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf"))


@contextmanager
def serving_beside_local(name: str, file: str) -> Iterator[Served]:
    """A server, and whatever of `Served` is asked for beside it, as long as the block runs."""
    with serving(file) as server:
        made = Served(name, file, server)
        yield made
        made.client.close()
        if "local" in vars(made):
            made.local.close()


@pytest.fixture(scope="package", params=["tiny", "smollm2-135m"])
def served(request: pytest.FixtureRequest, tiny_file: str) -> Iterator[Served]:
    """Both models, one after the other."""
    file = tiny_file if request.param == "tiny" else str(model_path(request.param))
    with serving_beside_local(request.param, file) as made:
        yield made


@pytest.fixture(scope="package")
def tiny(tiny_file: str) -> Iterator[Served]:
    """The tiny model alone, for what needs no sense in the answers."""
    with serving_beside_local("tiny", tiny_file) as made:
        yield made
