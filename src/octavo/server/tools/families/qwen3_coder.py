"""Qwen3-Coder: calls in tags, arguments as bare text.

`<tool_call>\\n<function=NAME>\\n<parameter=KEY>\\nVALUE\\n</parameter>\\n ... </function>\\n</tool_call>`

Source: the chat template of Qwen/Qwen3-Coder-480B-A35B-Instruct. The models often leave out `<tool_call>`, the end of
a parameter or of the function, or write the names in quotes; all of that is read. A value ends at the next tag of the
format, with one line break at each side taken off. What a value is depends on the tool's schema (`argument_text.py`).
"""

import re
from collections.abc import Sequence

from octavo.server.tools.argument_text import ArgumentText
from octavo.server.tools.call_format import ArgumentSyntax, CallFormat, CallPattern, call_format
from octavo.server.tools.json_text import quoted
from octavo.server.tools.reader import MalformedCallError, MarkerSet, Parsing
from octavo.server.tools.scan import Scan
from octavo.server.tools.tool import Tool, ToolChoice

TAG, END_TAG = "<tool_call>", "</tool_call>"
FUNCTION, END_FUNCTION = "<function=", "</function>"
PARAMETER, END_PARAMETER = "<parameter=", "</parameter>"
_MARKERS = MarkerSet((TAG, FUNCTION))
_VALUE_ENDS = MarkerSet((END_PARAMETER, PARAMETER, END_FUNCTION))
_NAME = re.compile(r"[^<>\n]+")


class Qwen3Coder:
    """The family."""

    name = "qwen3_coder"
    id_length: int | None = None

    def recognises(self, template: str) -> bool:
        """See ToolFamily."""
        return FUNCTION in template and PARAMETER in template

    def parse(self, scan: Scan) -> Parsing[None]:
        """See ToolFamily."""
        return scan.answer(_MARKERS, _calls)

    def call_format(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> CallFormat:
        """See ToolFamily."""
        end = f"{END_FUNCTION}\n{END_TAG}"
        patterns = [
            CallPattern(tool.name, f"{TAG}\n{FUNCTION}{tool.name}>\n", end, tool.parameters, ArgumentSyntax.XML)
            for tool in tools
        ]
        return call_format(patterns, choice, parallel=parallel, separator="\n", trigger=TAG)


def _calls(scan: Scan, marker: str) -> Parsing[None]:
    reader = scan.reader
    if marker == TAG:
        yield from reader.space()
        yield from reader.expect(FUNCTION)
    while True:
        last = yield from _function(scan)
        yield from reader.space()
        if last != END_TAG and (last := (yield from reader.accept(FUNCTION, END_TAG))):
            scan.settle()
        if last != FUNCTION:
            return


def _function(scan: Scan) -> Parsing[str]:
    """One call, behind `<function=`, and the tag that ends it, which is returned. It is a call when its first
    parameter, or its end, has been read."""
    reader = scan.reader
    name = yield from _tag_name(scan)
    yield from reader.space()
    tag = yield from reader.expect(PARAMETER, END_FUNCTION, END_TAG)
    scan.open_call(name)
    separator = "{"
    while tag == PARAMETER:
        key = yield from _tag_name(scan)
        scan.events.arguments(f"{separator}{quoted(key)}: ")
        tag = yield from _value(scan, name, key)
        separator = ", "
    scan.events.arguments("{}" if separator == "{" else "}")
    scan.close_call()
    return tag


def _tag_name(scan: Scan) -> Parsing[str]:
    name = yield from scan.reader.word(_NAME)
    if not name.strip() or not (yield from scan.reader.accept(">")):
        raise MalformedCallError("a tag without a name", name)
    name = name.strip()
    if len(name) > 1 and name[0] == name[-1] and name[0] in "\"'":
        name = name[1:-1]
    return name


def _value(scan: Scan, function: str, key: str) -> Parsing[str]:
    """A value and the tag behind it: of the next parameter, or of the function's end."""
    reader = scan.reader
    tool = scan.tools.get(function)
    value = ArgumentText(None if tool is None else tool.property_schema(key), scan.events.arguments)
    tag = yield from reader.until(_VALUE_ENDS, value.add)
    if not tag:
        raise MalformedCallError("the text ends inside a value")
    value.finish()
    if tag != END_PARAMETER:
        return tag
    yield from reader.space()
    return (yield from reader.expect(PARAMETER, END_FUNCTION, END_TAG))
