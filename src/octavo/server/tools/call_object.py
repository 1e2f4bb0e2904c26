"""Calls written as JSON objects: `{"name": ..., "arguments": {...}}` and the spellings that models make of it."""

from octavo.server.tools.json_text import json_name, json_object, json_string, json_value, mended_object
from octavo.server.tools.reader import MalformedCallError, Parsing
from octavo.server.tools.scan import Names, Scan

NAME_KEYS = frozenset(("name", "function"))
ARGUMENT_KEYS = frozenset(("arguments", "parameters"))
BESIDE_KEYS = frozenset(("id", "type", "index", "call_id", "tool_call_id"))
"""Keys of OpenAI's and Mistral's call objects that say nothing about what is called."""
_STRICT_KEYS = Names(NAME_KEYS | ARGUMENT_KEYS | {"type"})


def call_objects(scan: Scan, ends: tuple[str, ...], names: Names, *, strict: bool = False) -> Parsing[None]:
    """One object, several (with a comma, a semicolon or white space between), or a list of them; then one of `ends`, if
    it is there: the objects close themselves.

    Args:
        ends: closing markers.
        names: those that make a call.
        strict: the objects are calls only if they hold nothing but name and arguments, up to the end of the arguments,
            and perhaps `"type": "function"`.

    Raises:
        MalformedCallError: text that is none of this.
    """
    reader = scan.reader
    yield from reader.space()
    if (yield from reader.accept("[")):
        yield from rest_of_list(scan, names, strict=strict)
    else:
        yield from _sequence(scan, names, strict)
    if ends:
        yield from reader.space()
        if (yield from reader.accept(*ends)):
            scan.settle()


def rest_of_list(scan: Scan, names: Names, *, strict: bool = False) -> Parsing[None]:
    """Objects with commas between, behind an opening bracket, and the closing one.

    Raises:
        MalformedCallError: text that is none of this.
    """
    reader = scan.reader
    while True:
        yield from reader.space()
        yield from CallObject(scan, names, strict).parse()
        yield from reader.space()
        if (yield from reader.expect(",", "]")) == "]":
            scan.settle()
            return


def _sequence(scan: Scan, names: Names, strict: bool) -> Parsing[None]:
    reader = scan.reader
    yield from CallObject(scan, names, strict).parse()
    while True:
        yield from reader.space()
        if (yield from reader.accept(",", ";")):
            yield from reader.space()
        if (yield from reader.peek()) != "{":
            return
        yield from CallObject(scan, names, strict).parse()


def named_call(scan: Scan, name: str) -> Parsing[None]:
    """A call whose name has been read, with its arguments, a JSON object that begins here."""
    if not name or (yield from scan.reader.peek()) != "{":
        raise MalformedCallError("no name or no arguments")
    scan.open_call(name)
    yield from json_object(scan.reader, scan.events.arguments)
    scan.close_call()


class CallObject:
    """One call while it is read.

    It becomes a call when its name is known and its arguments open, and ends with the arguments; keys behind them are
    read over. Where the arguments come first they wait for the name.
    """

    def __init__(self, scan: Scan, names: Names, strict: bool) -> None:
        self._scan = scan
        self._names = names
        self._strict = strict
        self._name: str | None = None
        self._waiting: str | None = None
        """Arguments that came before the name."""
        self._has_foreign_keys = False
        self._is_done = False

    def parse(self) -> Parsing[None]:
        """The object, from its opening bracket.

        Raises:
            MalformedCallError: it is no call, or no JSON.
        """
        yield from self._members()
        if not self._is_done:
            self._close_without_arguments()
        self._scan.settle()

    def _members(self) -> Parsing[None]:
        reader = self._scan.reader
        yield from reader.expect("{")
        yield from reader.space()
        while True:
            key = yield from self._key()
            yield from reader.space()
            yield from reader.expect(":")
            yield from reader.space()
            yield from self._member(key)
            yield from reader.space()
            if (yield from reader.expect(",", "}")) == "}":
                return
            yield from reader.space()

    def _key(self) -> Parsing[str]:
        reader = self._scan.reader
        if self._strict and not self._is_done:
            return (yield from json_name(reader, _STRICT_KEYS.may_begin))
        return (yield from json_string(reader))

    def _member(self, key: str) -> Parsing[None]:
        if not self._is_done and key in NAME_KEYS:
            yield from self._read_name(key)
        elif not self._is_done and key in ARGUMENT_KEYS:
            yield from self._read_arguments()
        else:
            yield from self._read_over(key)

    def _read_over(self, key: str) -> Parsing[None]:
        """A value that says nothing about what is called."""
        if self._strict and not self._is_done:
            if key != "type":
                raise MalformedCallError("an object with other keys")
            yield from self._scan.reader.expect('"function"')
            return
        self._has_foreign_keys |= key not in BESIDE_KEYS
        yield from json_value(self._scan.reader, lambda text: None)

    def _read_name(self, key: str) -> Parsing[None]:
        """The name; under `function` it may be an object that holds name and arguments, as in OpenAI's API."""
        if key == "function" and (yield from self._scan.reader.peek()) == "{":
            yield from self._members()
            return
        name = yield from json_name(self._scan.reader, self._names.may_begin)
        if not self._names.accepts(name):
            raise MalformedCallError("not a name to call")
        self._name = self._name or name
        if self._waiting is not None:
            self._whole_call(self._waiting)

    def _read_arguments(self) -> Parsing[None]:
        """An object; or its text as a string; or null, for none. Only an object is passed on while it comes."""
        scan, char = self._scan, (yield from self._scan.reader.peek())
        if char == "{" and self._name is not None:
            scan.open_call(self._name)
            yield from json_value(scan.reader, scan.events.arguments)
            scan.close_call()
            self._is_done = True
            return
        text = yield from self._whole_arguments(char)
        if self._name is not None:
            self._whole_call(text)
        elif self._waiting is None:
            self._waiting = text

    def _whole_arguments(self, char: str) -> Parsing[str]:
        reader = self._scan.reader
        if char == '"':
            return mended_object((yield from json_string(reader)) or "{}")
        if char == "n":
            yield from reader.expect("null")
            return "{}"
        pieces: list[str] = []
        yield from json_object(reader, pieces.append)
        return "".join(pieces)

    def _close_without_arguments(self) -> None:
        if self._name is None or self._has_foreign_keys:
            raise MalformedCallError("no call")
        self._whole_call("{}")

    def _whole_call(self, arguments: str) -> None:
        assert self._name is not None
        self._scan.open_call(self._name)
        self._scan.events.arguments(arguments)
        self._scan.close_call()
        self._is_done = True
