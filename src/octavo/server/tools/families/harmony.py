"""Harmony, the format of gpt-oss: `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>`.

Source: https://github.com/openai/harmony, docs/format.md. The messages of the other channels are told apart by the
reasoning family of the same name, which also brings the header of a call into the order above.
"""

import re
from collections.abc import Sequence

from octavo.server.tools.call_format import CallFormat, call_format, json_pattern
from octavo.server.tools.call_object import named_call
from octavo.server.tools.reader import MarkerSet, Parsing
from octavo.server.tools.scan import Scan
from octavo.server.tools.tool import Tool, ToolChoice

CALL = "<|channel|>commentary to="
CONSTRAIN, MESSAGE = "<|constrain|>", "<|message|>"
ENDS = ("<|call|>", "<|end|>", "<|return|>")
NAMESPACE = "functions."
_MARKERS = MarkerSet((CALL,))
_NAME = re.compile(r"[^\s<>{}]+")


class Harmony:
    """The family."""

    name = "harmony"
    id_length: int | None = None

    def recognises(self, template: str) -> bool:
        """See ToolFamily."""
        return "<|channel|>" in template and MESSAGE in template

    def parse(self, scan: Scan) -> Parsing[None]:
        """See ToolFamily."""
        return scan.answer(_MARKERS, _call)

    def call_format(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> CallFormat:
        """One call: the model stops behind it."""
        head = f"{CALL}{NAMESPACE}"
        patterns = [json_pattern(tool, head, f" {CONSTRAIN}json{MESSAGE}", ENDS[0]) for tool in tools]
        return call_format(patterns, choice, parallel=False, trigger=head)


def _call(scan: Scan, marker: str) -> Parsing[None]:
    reader = scan.reader
    name = (yield from reader.word(_NAME)).removeprefix(NAMESPACE)
    yield from reader.space()
    yield from reader.accept(CONSTRAIN)
    yield from reader.accept("json")
    yield from reader.space()
    yield from reader.expect(MESSAGE)
    yield from reader.space()
    yield from named_call(scan, name)
    yield from reader.space()
    if (yield from reader.accept(*ENDS)):
        scan.settle()
