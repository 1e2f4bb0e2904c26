"""What a request says of its tools, as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Tool:
    """One function that the model may call."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """JSON Schema of the arguments object; empty: any object."""
    strict: bool = False
    """The arguments must follow the schema, also where the model is free to call or not."""
    description: str = ""
    """For the model."""

    def property_schema(self, name: str) -> Any:
        """The schema of one argument; None if the tool does not declare it."""
        properties = self.parameters.get("properties")
        return properties.get(name) if isinstance(properties, Mapping) else None


@dataclass(frozen=True, slots=True)
class NamedTool:
    """`tool_choice` with a function: exactly this one is called, once."""

    name: str


ToolChoice = Literal["auto", "required"] | NamedTool
"""`none` is not among them: then there is nothing to parse and nothing to constrain."""
