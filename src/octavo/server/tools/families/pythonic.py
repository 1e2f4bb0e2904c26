"""Python calls: `[f(a=1, b="x"), g()]`; Llama 3.2 and 4, and models prompted so.

Sources: https://github.com/meta-llama/llama-models, models/llama3_2/text_prompt_format.md (zero-shot function calling);
https://www.llama.com/docs/model-cards-and-prompt-formats/llama4/. Without `<|python_start|>` the list must be the
beginning of the answer and name a tool that was offered. Llama 4's own template has JSON objects in its place. The
parser is our own and evaluates nothing.
"""

from collections.abc import Sequence

from octavo.server.tools.call_format import ArgumentSyntax, CallFormat, CallPattern, call_format
from octavo.server.tools.python_calls import call_list
from octavo.server.tools.reader import MarkerSet, Parsing
from octavo.server.tools.scan import Scan
from octavo.server.tools.tool import Tool, ToolChoice

START, END = "<|python_start|>", "<|python_end|>"
_MARKERS = MarkerSet((START,))


class Pythonic:
    """The family."""

    name = "pythonic"
    id_length: int | None = None

    def recognises(self, template: str) -> bool:
        """See ToolFamily."""
        return "func_name1(" in template or ("<|header_start|>" in template and "tools" in template)

    def parse(self, scan: Scan) -> Parsing[None]:
        """See ToolFamily."""
        return scan.answer(_MARKERS, _marked, bare_calls)

    def call_format(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> CallFormat:
        """See ToolFamily."""
        patterns = [python_pattern(tool) for tool in tools]
        return call_format(patterns, choice, parallel=parallel, begin="[", separator=", ", end="]")


def python_pattern(tool: Tool) -> CallPattern:
    """`NAME(key=value, ...)`."""
    return CallPattern(tool.name, f"{tool.name}(", ")", tool.parameters, ArgumentSyntax.PYTHON)


def bare_calls(scan: Scan) -> Parsing[None]:
    """A list of calls of known tools, without any marker."""
    return call_list(scan, scan.known_names)


def _marked(scan: Scan, marker: str) -> Parsing[None]:
    reader = scan.reader
    yield from call_list(scan, scan.any_name)
    yield from reader.space()
    if (yield from reader.accept(END)):
        scan.settle()
