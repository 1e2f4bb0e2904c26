"""DeepSeek V3 and R1: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME`, a `json` fence with the
arguments, `<｜tool▁call▁end｜>`, further calls, `<｜tool▁calls▁end｜>`. V3.1 leaves out the type and the fence:
`<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>`.

Sources: the chat templates of deepseek-ai/DeepSeek-V3, DeepSeek-R1-0528 and DeepSeek-V3.1. The bars are U+FF5C, the
underscores U+2581.
"""

import re
from collections.abc import Sequence

from octavo.server.tools.call_format import CallFormat, CallPattern, call_format, json_pattern
from octavo.server.tools.call_object import named_call
from octavo.server.tools.reader import MarkerSet, Parsing
from octavo.server.tools.scan import Scan
from octavo.server.tools.tool import Tool, ToolChoice

CALLS, CALL, SEPARATOR = "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"
END_CALL, END_CALLS = "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"
FENCE, END_FENCE = "```json", "```"
_MARKERS = MarkerSet((CALLS, CALL))
_LINE = re.compile(r"[^\r\n<`{]+")


class DeepSeekV3:
    """V3 and R1. Both formats are read by both families; they differ in what constrained answers look like."""

    name = "deepseek_v3"
    id_length: int | None = None

    def recognises(self, template: str) -> bool:
        """See ToolFamily."""
        return SEPARATOR in template and FENCE in template

    def parse(self, scan: Scan) -> Parsing[None]:
        """See ToolFamily."""
        return scan.answer(_MARKERS, _calls)

    def call_format(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> CallFormat:
        """See ToolFamily."""
        head, tail = f"{CALL}function{SEPARATOR}", f"\n{END_FENCE}{END_CALL}"
        patterns = [json_pattern(tool, head, f"\n{FENCE}\n", tail) for tool in tools]
        return _in_block(patterns, choice, parallel, separator="\n")


class DeepSeekV31(DeepSeekV3):
    """V3.1."""

    name = "deepseek_v31"

    def recognises(self, template: str) -> bool:
        """See ToolFamily."""
        return SEPARATOR in template and FENCE not in template

    def call_format(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> CallFormat:
        """See ToolFamily."""
        patterns = [json_pattern(tool, CALL, SEPARATOR, END_CALL) for tool in tools]
        return _in_block(patterns, choice, parallel, separator="")


def _in_block(patterns: Sequence[CallPattern], choice: ToolChoice, parallel: bool, separator: str) -> CallFormat:
    return call_format(
        patterns, choice, parallel=parallel, begin=CALLS, separator=separator, end=END_CALLS, trigger=CALLS
    )


def _calls(scan: Scan, marker: str) -> Parsing[None]:
    reader = scan.reader
    if marker == CALLS:
        yield from reader.space()
        yield from reader.expect(CALL)
    while True:
        yield from _call(scan)
        yield from reader.space()
        end = yield from reader.accept(CALL, END_CALLS)
        if end:
            scan.settle()
        if end != CALL:
            return


def _call(scan: Scan) -> Parsing[None]:
    """One call, behind its opening token. What stands before the separator is the type if a name follows, else it is
    the name."""
    reader = scan.reader
    name = (yield from reader.word(_LINE)).strip()
    yield from reader.expect(SEPARATOR)
    yield from reader.space()
    if (yield from reader.peek()) != "{":
        name = (yield from reader.word(_LINE)).strip()
        yield from reader.space()
        if (yield from reader.accept(FENCE)):
            yield from reader.space()
    yield from named_call(scan, name)
    yield from reader.space()
    if (yield from reader.accept(END_FENCE)):
        yield from reader.space()
    if (yield from reader.accept(END_CALL)):
        scan.settle()
