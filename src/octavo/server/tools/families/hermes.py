"""Hermes: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`; Qwen2.5, Qwen3, Granite 4 and many others.

Sources: https://github.com/NousResearch/Hermes-Function-Calling (format); the chat templates of Qwen2.5 and Qwen3.
Qwen2.5-Coder's template asks for the tags, but the model writes the bare object or one in a `json` fence, so both are
taken, but only at the beginning of the answer, with the name of a tool that was offered and no other keys. (Fences in
the middle of an answer are examples at least as often as calls.)
"""

from collections.abc import Sequence

from octavo.server.tools.call_format import CallFormat, call_format
from octavo.server.tools.call_object import call_objects
from octavo.server.tools.families.json_pattern import object_pattern
from octavo.server.tools.reader import MarkerSet, Parsing
from octavo.server.tools.scan import Scan
from octavo.server.tools.tool import Tool, ToolChoice

TAG, END_TAG = "<tool_call>", "</tool_call>"
FENCE, END_FENCE = "```json", "```"
_MARKERS = MarkerSet((TAG,))


class Hermes:
    """The family."""

    name = "hermes"
    id_length: int | None = None

    def recognises(self, template: str) -> bool:
        """See ToolFamily."""
        return TAG in template

    def parse(self, scan: Scan) -> Parsing[None]:
        """See ToolFamily."""
        return scan.answer(_MARKERS, _calls, bare_objects)

    def call_format(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> CallFormat:
        """See ToolFamily."""
        patterns = [object_pattern(tool, before=f"{TAG}\n", after=f"\n{END_TAG}") for tool in tools]
        return call_format(patterns, choice, parallel=parallel, separator="\n", trigger=TAG)


def bare_objects(scan: Scan) -> Parsing[None]:
    """Objects that call known tools, bare or in fences."""
    reader = scan.reader
    yield from reader.space()
    if not (yield from reader.accept(FENCE)):
        yield from call_objects(scan, (), scan.known_names, strict=True)
        return
    is_fenced = True
    while is_fenced:
        yield from call_objects(scan, (END_FENCE,), scan.known_names, strict=True)
        yield from reader.space()
        is_fenced = bool((yield from reader.accept(FENCE)))


def _calls(scan: Scan, marker: str) -> Parsing[None]:
    return call_objects(scan, (END_TAG,), scan.any_name)
