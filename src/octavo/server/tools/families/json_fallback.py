"""Plain JSON, for models whose template mentions tools in no format that we know.

An object `{"name": ..., "arguments": {...}}` (or `parameters`), or a list of them: at the beginning of the
answer, bare or in a `json` fence, or in Hermes tags. Only names of tools that were offered make a call.
"""

from collections.abc import Sequence

from octavo.server.tools.call_format import CallFormat, call_format
from octavo.server.tools.call_object import call_objects
from octavo.server.tools.families.hermes import END_TAG, TAG, bare_objects
from octavo.server.tools.families.json_pattern import object_pattern
from octavo.server.tools.reader import MarkerSet, Parsing
from octavo.server.tools.scan import Scan
from octavo.server.tools.tool import Tool, ToolChoice

_MARKERS = MarkerSet((TAG,))


class JsonFallback:
    """The family."""

    name = "json"
    id_length: int | None = None

    def recognises(self, template: str) -> bool:
        """Any template that prints tools."""
        return "tools" in template

    def parse(self, scan: Scan) -> Parsing[None]:
        """See ToolFamily."""
        return scan.answer(_MARKERS, _calls, bare_objects)

    def call_format(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> CallFormat:
        """See ToolFamily."""
        patterns = [object_pattern(tool) for tool in tools]
        return call_format(patterns, choice, parallel=parallel, separator="\n")


def _calls(scan: Scan, marker: str) -> Parsing[None]:
    return call_objects(scan, (END_TAG,), scan.known_names, strict=True)
