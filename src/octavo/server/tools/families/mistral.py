"""Mistral: `[TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]`, and since tokenizer version 11
`[TOOL_CALLS]name[CALL_ID]id[ARGS]{...}` (version 13 without the id), once for each call.

Source: https://github.com/mistralai/mistral-common, tokens/tokenizers/instruct.py (InstructTokenizerV3, V7, V11, V13).
Some templates and models leave out `[ARGS]`.
"""

import re
from collections.abc import Sequence

from octavo.server.tools.call_format import CallFormat, call_format, json_pattern
from octavo.server.tools.call_object import call_objects, named_call
from octavo.server.tools.families.json_pattern import object_pattern
from octavo.server.tools.reader import MalformedCallError, MarkerSet, Parsing
from octavo.server.tools.scan import Scan
from octavo.server.tools.tool import Tool, ToolChoice

TOKEN, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_MARKERS = MarkerSet((TOKEN,))
_NAME = re.compile(r"[^\s\[\]{}\"]+")
_CALL_ID = re.compile(r"[A-Za-z0-9_-]+")


class Mistral:
    """Both formats are read; constrained answers are in the newer one."""

    name = "mistral"
    id_length: int | None = 9

    def recognises(self, template: str) -> bool:
        """See ToolFamily."""
        return TOKEN in template

    def parse(self, scan: Scan) -> Parsing[None]:
        """See ToolFamily."""
        return scan.answer(_MARKERS, _calls)

    def call_format(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> CallFormat:
        """See ToolFamily."""
        patterns = [json_pattern(tool, TOKEN, ARGS, "") for tool in tools]
        return call_format(patterns, choice, parallel=parallel, trigger=TOKEN)


class MistralList(Mistral):
    """The older format, for models whose template writes it."""

    name = "mistral_list"

    def recognises(self, template: str) -> bool:
        """See ToolFamily."""
        return f"{TOKEN} [" in template or f"{TOKEN}[" in template

    def call_format(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> CallFormat:
        """See ToolFamily."""
        begin = f"{TOKEN} ["
        patterns = [object_pattern(tool) for tool in tools]
        return call_format(patterns, choice, parallel=parallel, begin=begin, separator=", ", end="]", trigger=TOKEN)


def _calls(scan: Scan, marker: str) -> Parsing[None]:
    reader = scan.reader
    yield from reader.space()
    if (yield from reader.peek()) in ("[", "{"):
        yield from call_objects(scan, (), scan.any_name)
        return
    name = yield from reader.word(_NAME)
    if not name:
        raise MalformedCallError("neither a list nor a name")
    if (yield from reader.accept(CALL_ID)):
        yield from reader.word(_CALL_ID)
    yield from reader.accept(ARGS)
    yield from reader.space()
    yield from named_call(scan, name)
