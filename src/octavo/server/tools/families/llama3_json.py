"""Llama 3.1, 3.2 and 3.3: `{"name": ..., "parameters": {...}}`, bare or behind `<|python_tag|>`.

Source: https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1/ (JSON based tool calling). Several calls
come with semicolons or as a list, though the models were trained on one. Without the tag only the name of a tool that
was offered makes a call.
"""

from collections.abc import Sequence

from octavo.server.tools.call_format import CallFormat, call_format
from octavo.server.tools.call_object import call_objects
from octavo.server.tools.families.hermes import bare_objects
from octavo.server.tools.families.json_pattern import object_pattern
from octavo.server.tools.reader import MarkerSet, Parsing
from octavo.server.tools.scan import Scan
from octavo.server.tools.tool import Tool, ToolChoice

TAG = "<|python_tag|>"
_MARKERS = MarkerSet((TAG,))


class Llama3Json:
    """The family."""

    name = "llama3_json"
    id_length: int | None = None

    def recognises(self, template: str) -> bool:
        """See ToolFamily."""
        return TAG in template or ("<|start_header_id|>" in template and '"parameters"' in template)

    def parse(self, scan: Scan) -> Parsing[None]:
        """See ToolFamily."""
        return scan.answer(_MARKERS, _calls, bare_objects)

    def call_format(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> CallFormat:
        """See ToolFamily."""
        patterns = [object_pattern(tool, arguments_key="parameters") for tool in tools]
        return call_format(patterns, choice, parallel=parallel, separator="; ")


def _calls(scan: Scan, marker: str) -> Parsing[None]:
    return call_objects(scan, (), scan.any_name)
