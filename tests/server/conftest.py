"""Servers and clients for HTTP tests."""

import ssl
import time
from collections.abc import Callable, Iterator

import httpx
import openai
import pytest

from octavo.config import ServerConfig
from tests.server.fake_engine import FakeEngine
from tests.server.running import RunningServer, running_server

FakeServer = RunningServer[FakeEngine]


async def fake() -> FakeEngine:
    return FakeEngine()


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    """One server with a stand-in engine per test file; tests undo what they set on the engine."""
    with running_server(fake) as running:
        yield running


@pytest.fixture
def http(server: FakeServer) -> Iterator[httpx.Client]:
    """Plain HTTP."""
    with httpx.Client(base_url=server.url, timeout=30) as client:
        yield client


@pytest.fixture
def client(server: FakeServer) -> Iterator[openai.OpenAI]:
    """The stock client."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=30) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def quick_httpx() -> Iterator[None]:
    """`httpx.get` and its like load all certificates of the system at each call; tests of this room speak plain HTTP.
    Others, which run in the same process later, do not."""
    empty = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", lambda *_, **__: empty)
        yield


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 10) -> None:
    """Polls until the condition holds; fails the test if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"after {timeout_s} s still not: {what}")
        time.sleep(0.005)


@pytest.fixture
def guarded() -> Iterator[FakeServer]:
    """A server with two keys."""
    with running_server(fake, ServerConfig(port=0, api_key=("first-key", "zweiter-schlüssel"))) as running:
        yield running
