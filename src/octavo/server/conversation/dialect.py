"""Which formats a model writes its calls and its reasoning in: named by flags, else recognised in the chat template."""

from dataclasses import dataclass

from octavo.config import ServerConfig
from octavo.server.reasoning.family import ReasoningFamily
from octavo.server.reasoning.registry import NO_REASONING, reasoning_family, recognised_reasoning
from octavo.server.tools.family import ToolFamily
from octavo.server.tools.registry import recognised_family, tool_family


@dataclass(frozen=True)
class Dialect:
    """How a model writes."""

    tools: ToolFamily | None = None
    """None: its chat template has no place for tools, so the model cannot be told of any."""
    reasoning: ReasoningFamily = NO_REASONING


class Dialects:
    """Chooses by template, under a server's flags."""

    def __init__(self, config: ServerConfig) -> None:
        """
        Raises:
            ConfigError: a flag names a family that there is not.
        """
        self._tools = None if config.tool_call_parser is None else tool_family(config.tool_call_parser)
        self._reasoning = None if config.reasoning_parser is None else reasoning_family(config.reasoning_parser)

    def of(self, template: str) -> Dialect:
        """The dialect of a model with this chat template. A flag names a format; it shows no tools to the model."""
        tools = (self._tools or recognised_family(template)) if "tools" in template else None
        return Dialect(tools, self._reasoning or recognised_reasoning(template))
