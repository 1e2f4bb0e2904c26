"""FunctionGemma and Gemma 4: `call:NAME{key:value,...}` between two tokens; strings stand between two quote tokens.

FunctionGemma: `<start_function_call>call:NAME{city:<escape>Paris<escape>}<end_function_call>`;
https://ai.google.dev/gemma/docs/functiongemma/formatting-and-best-practices.
Gemma 4: `<|tool_call>call:NAME{city:<|"|>Paris<|"|>}<tool_call|>`; its chat template (google/gemma-4).
The arguments' JSON has one comma and colon style (`, ` and `: `); numbers stay as written.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.server.tools.call_format import ArgumentSyntax, CallFormat, CallPattern, call_format
from octavo.server.tools.json_text import MAX_NESTING, json_value, quoted
from octavo.server.tools.reader import (
    UNLIMITED,
    MalformedCallError,
    MarkerSet,
    Parsing,
    Sink,
    TextReader,
    read_whole,
    result_of,
)
from octavo.server.tools.scan import Scan
from octavo.server.tools.tool import Tool, ToolChoice

_NAME = re.compile(r"[^\s{}<>\"]+")
_KEY = re.compile(r"[^\s:{}\[\],<>]+")
_SCALAR = re.compile(r"[^,{}\[\]<>]+")


@dataclass(frozen=True)
class DelimitedGemma:
    """Either family."""

    name: str
    begin: str
    end: str
    quote: str
    id_length: int | None = None

    def recognises(self, template: str) -> bool:
        """See ToolFamily."""
        return self.begin in template

    def parse(self, scan: Scan) -> Parsing[None]:
        """See ToolFamily."""
        return scan.answer(MarkerSet((self.begin,)), self._call)

    def call_format(self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> CallFormat:
        """See ToolFamily."""
        patterns = [self._pattern(tool) for tool in tools]
        return call_format(patterns, choice, parallel=parallel, trigger=self.begin)

    def _pattern(self, tool: Tool) -> CallPattern:
        begin, end = f"{self.begin}call:{tool.name}{{", f"}}{self.end}"
        return CallPattern(tool.name, begin, end, tool.parameters, ArgumentSyntax.ESCAPED, self.quote)

    def _call(self, scan: Scan, marker: str) -> Parsing[None]:
        reader = scan.reader
        yield from reader.space()
        yield from reader.expect("call:")
        name = yield from reader.word(_NAME)
        yield from reader.space()
        if not name or (yield from reader.peek()) != "{":
            raise MalformedCallError("no name or no arguments")
        scan.open_call(name)
        yield from DelimitedValue(reader, scan.events.arguments, self.quote).parse()
        scan.close_call()
        yield from reader.space()
        if (yield from reader.accept(self.end)):
            scan.settle()


class DelimitedValue:
    """A value in this syntax, passed on as JSON."""

    def __init__(self, reader: TextReader, sink: Sink, quote: str) -> None:
        self._reader = reader
        self._sink = sink
        self._quote = quote
        self._quote_set = MarkerSet((quote,))

    def parse(self, depth: int = 0) -> Parsing[None]:
        """Raises:
        MalformedCallError: text that is no value.
        """
        if depth > MAX_NESTING:
            raise MalformedCallError("nested too deeply")
        char = yield from self._reader.peek()
        if char == "{":
            yield from self._container("}", depth)
        elif char == "[":
            yield from self._container("]", depth)
        elif (yield from self._reader.accept(self._quote)):
            yield from self._string()
        else:
            self._sink(_as_json((yield from self._reader.word(_SCALAR, UNLIMITED)).strip()))

    def _container(self, closing: str, depth: int) -> Parsing[None]:
        reader = self._reader
        self._sink(reader.skip())
        yield from reader.space()
        if not (yield from reader.accept(closing)):
            while True:
                if closing == "}":
                    yield from self._key()
                yield from self.parse(depth + 1)
                yield from reader.space()
                if (yield from reader.expect(",", closing)) == closing:
                    break
                self._sink(", ")
                yield from reader.space()
        self._sink(closing)

    def _key(self) -> Parsing[None]:
        reader = self._reader
        if (yield from reader.accept(self._quote)):
            yield from self._string()
        else:
            key = yield from reader.word(_KEY)
            if not key or (yield from reader.peek()) != ":":
                raise MalformedCallError("no key", key)
            self._sink(quoted(key))
        yield from reader.space()
        yield from reader.expect(":")
        yield from reader.space()
        self._sink(": ")

    def _string(self) -> Parsing[None]:
        self._sink('"')
        if not (yield from self._reader.until(self._quote_set, lambda text: self._sink(quoted(text)[1:-1]))):
            raise MalformedCallError("the text ends inside a string")
        self._sink('"')


def _as_json(text: str) -> str:
    """A bare scalar: JSON's words and numbers; anything else is a string whose quotes were forgotten."""
    if not text:
        raise MalformedCallError("no value")
    reader = read_whole(text)
    try:
        result_of(json_value(reader, lambda piece: None))
        return text if not result_of(reader.peek()) else quoted(text)
    except MalformedCallError:
        return quoted(text)
