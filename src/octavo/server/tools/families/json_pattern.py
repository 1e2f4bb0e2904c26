"""Call patterns of the families whose calls are JSON objects."""

from octavo.server.tools.call_format import CallPattern
from octavo.server.tools.json_text import quoted
from octavo.server.tools.tool import Tool


def object_pattern(tool: Tool, *, before: str = "", after: str = "", arguments_key: str = "arguments") -> CallPattern:
    """`{"name": NAME, "arguments": ARGUMENTS}` between two texts."""
    begin = f'{before}{{"name": {quoted(tool.name)}, "{arguments_key}": '
    return CallPattern(tool.name, begin, f"}}{after}", tool.parameters)
