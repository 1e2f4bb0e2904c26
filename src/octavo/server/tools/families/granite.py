"""IBM Granite 3: `<|tool_call|>[{"name": ..., "arguments": {...}}, ...]`, in 3.1 with the tag `<tool_call>`.

Sources: the chat templates of ibm-granite/granite-3.0 to 3.3; https://docs.vllm.ai/en/latest/features/tool_calling.html.
Granite 4 writes Hermes' format, which is read here, too. Phi-4-mini closes its list with `<|/tool_call|>`.
"""

from collections.abc import Sequence

from octavo.server.tools.call_format import CallFormat, call_format
from octavo.server.tools.call_object import call_objects
from octavo.server.tools.families.json_pattern import object_pattern
from octavo.server.tools.reader import MarkerSet, Parsing
from octavo.server.tools.scan import Scan
from octavo.server.tools.tool import Tool, ToolChoice

TOKEN, TAG = "<|tool_call|>", "<tool_call>"
_ENDS = {TOKEN: ("<|/tool_call|>", "</tool_call>"), TAG: ("</tool_call>",)}
_MARKERS = MarkerSet(tuple(_ENDS))


class Granite:
    """The family."""

    name = "granite"
    id_length: int | None = None

    def recognises(self, template: str) -> bool:
        """See ToolFamily."""
        return TOKEN in template or ("<|start_of_role|>" in template and "available_tools" in template)

    def parse(self, scan: Scan) -> Parsing[None]:
        """See ToolFamily."""
        return scan.answer(_MARKERS, _calls)

    def call_format(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> CallFormat:
        """See ToolFamily."""
        patterns = [object_pattern(tool) for tool in tools]
        begin = f"{TOKEN}["
        return call_format(patterns, choice, parallel=parallel, begin=begin, separator=", ", end="]", trigger=begin)


def _calls(scan: Scan, marker: str) -> Parsing[None]:
    return call_objects(scan, _ENDS[marker], scan.any_name)
