"""A model that thinks and calls, for tests of the APIs that have items."""

from typing import Any

from tests.server.conftest import FakeServer
from tests.server.fake_engine import EOS, FakeEngine, FakeTokenizer

TOOL: Any = {
    "type": "function",
    "name": "weather",
    "description": "of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'
THOUGHT = "<think>\nhm, well\n</think>\n\nIt rains."


async def thinking() -> FakeEngine:
    """Its template has marks of reasoning and of calls."""
    return FakeEngine(max_model_len=4096, template="{{ tools }} <tool_call> {{ reasoning_effort }} <think> </think>")


def say(server: FakeServer, text: str, stride: int = 1) -> None:
    """From here on every answer of the model is this text."""
    server.engine.script = [*FakeTokenizer().encode(text, add_special=False), EOS]
    server.engine.stride = stride


def prompt_of(server: FakeServer) -> str:
    """The prompt of the last request."""
    return FakeTokenizer().decode(server.engine.seen[-1][0], skip_special=False)
