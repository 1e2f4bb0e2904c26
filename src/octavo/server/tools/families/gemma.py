"""Gemma 2 and 3: prompted formats, since these models have no tokens for calls.

Sources: https://ai.google.dev/gemma/docs/capabilities/function-calling (a list of Python calls, or one object with
`name` and `parameters`, as the whole answer); https://ai.google.dev/gemma/docs/meme-generator (Python calls in a
`tool_code` fence; models print them at times). Outside that fence only names of tools that were offered make a call.
"""

from collections.abc import Sequence

from octavo.server.tools.call_format import CallFormat, call_format
from octavo.server.tools.families.hermes import bare_objects
from octavo.server.tools.families.pythonic import python_pattern
from octavo.server.tools.python_calls import call_list, python_call
from octavo.server.tools.reader import MarkerSet, Parsing
from octavo.server.tools.scan import Scan
from octavo.server.tools.tool import Tool, ToolChoice

FENCE, END_FENCE = "```tool_code", "```"
_MARKERS = MarkerSet((FENCE,))


class Gemma:
    """The family."""

    name = "gemma"
    id_length: int | None = None

    def recognises(self, template: str) -> bool:
        """See ToolFamily."""
        return "tool_code" in template or ("<start_of_turn>" in template and "tools" in template)

    def parse(self, scan: Scan) -> Parsing[None]:
        """See ToolFamily."""
        return scan.answer(_MARKERS, _fenced, _bare)

    def call_format(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> CallFormat:
        """See ToolFamily."""
        begin, patterns = f"{FENCE}\n", [python_pattern(tool) for tool in tools]
        end = f"\n{END_FENCE}"
        return call_format(patterns, choice, parallel=parallel, begin=begin, separator="\n", end=end, trigger=begin)


def _bare(scan: Scan) -> Parsing[None]:
    yield from scan.reader.space()
    if (yield from scan.reader.peek()) == "[":
        yield from call_list(scan, scan.known_names)
    else:
        yield from bare_objects(scan)


def _fenced(scan: Scan, marker: str) -> Parsing[None]:
    reader = scan.reader
    while True:
        yield from reader.space()
        yield from _statement(scan)
        yield from reader.space()
        if (yield from reader.accept(END_FENCE)):
            scan.settle()
            return
        if not (yield from reader.peek()):
            return


def _statement(scan: Scan) -> Parsing[None]:
    """A list of calls, or a call, which may be printed."""
    reader = scan.reader
    if (yield from reader.peek()) == "[":
        yield from call_list(scan, scan.any_name)
        return
    printed = yield from reader.accept("print(")
    if printed:
        yield from reader.space()
    yield from python_call(scan, scan.any_name)
    if printed:
        yield from reader.space()
        yield from reader.expect(")")
    scan.settle()
