"""A conversation as plain data: what chat completions, Responses and Anthropic messages turn their requests into."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from octavo.request.structured import StructuredSpec
from octavo.server.tools.tool import Tool, ToolChoice


@dataclass(frozen=True, kw_only=True)
class ToolUse:
    """What the model may call."""

    tools: tuple[Tool, ...] = ()
    choice: ToolChoice | Literal["none"] = "auto"
    parallel: bool = True
    """False: one call at most."""

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that the model is told of. Under `none` there are none: nothing else would keep it from calling."""
        return () if self.choice == "none" else self.tools


@dataclass(frozen=True, kw_only=True)
class ReasoningOptions:
    """What becomes of what the model thinks before it answers."""

    separate: bool = True
    """False: it stays in the content, markers and all."""
    include: bool = True
    """False: it is left out of the answer, and only counted."""
    effort: str | None = None
    """Passed to the chat template: as `reasoning_effort`, or where it only has a switch, `none` turns thinking off."""
    budget: int | None = None
    """Most tokens of it; None or -1: any number."""


@dataclass(frozen=True, kw_only=True)
class TemplateOptions:
    """How the conversation is rendered."""

    add_generation_prompt: bool = True
    """End with the opening of the assistant's turn."""
    continue_final_message: bool = False
    """Leave the last message open, so that the model goes on with it; in place of a generation prompt."""
    source: str | None = None
    """A chat template in place of the model's."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Further variables of the template."""
    documents: Sequence[Mapping[str, Any]] | None = None
    """Documents to answer from."""


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """Messages, and what is to be done with them."""

    messages: Sequence[Mapping[str, Any]]
    """In the form that chat templates read: `role` (system, user, assistant, tool), `content` (text, or a list of
    `{"type": "text", "text": ...}`), `tool_calls` with arguments as objects, `tool_call_id`, `name`, `reasoning`."""
    tool_use: ToolUse = field(default_factory=ToolUse)
    shape: StructuredSpec | None = None
    """What the content must look like. Where the model may call or not, it must be JSON."""
    reasoning: ReasoningOptions = field(default_factory=ReasoningOptions)
    template: TemplateOptions = field(default_factory=TemplateOptions)
