"""Calls written as Python calls with keyword arguments: `[f(a=1), g()]`, or one a line."""

import re

from octavo.server.tools.call_object import call_objects, rest_of_list
from octavo.server.tools.json_text import quoted
from octavo.server.tools.python_text import python_value
from octavo.server.tools.reader import MalformedCallError, Parsing
from octavo.server.tools.scan import Names, Scan

_NAME = re.compile(r"[\w.:/-]+")
_KEY = re.compile(r"\w+")


def call_list(scan: Scan, names: Names) -> Parsing[None]:
    """Calls in brackets, with commas; or calls as JSON objects, in brackets or not, which models slip into.

    Raises:
        MalformedCallError: text that is something else.
    """
    reader = scan.reader
    yield from reader.space()
    if (yield from reader.peek()) == "{":
        yield from call_objects(scan, (), names, strict=True)
        return
    yield from reader.expect("[")
    yield from reader.space()
    if (yield from reader.peek()) == "{":
        yield from rest_of_list(scan, names, strict=True)
    else:
        yield from _rest_of_list(scan, names)


def _rest_of_list(scan: Scan, names: Names) -> Parsing[None]:
    reader = scan.reader
    while True:
        yield from reader.space()
        yield from python_call(scan, names)
        yield from reader.space()
        end = yield from reader.expect(",", "]")
        scan.settle()
        if end == "]":
            return


def python_call(scan: Scan, names: Names) -> Parsing[None]:
    """One call. It is one when its first keyword, or its end, has been read.

    Raises:
        MalformedCallError: there is none; its name is not accepted; an argument has no keyword or is no literal.
    """
    reader = scan.reader
    name = yield from reader.name(_NAME, names.may_begin)
    if not names.accepts(name):
        raise MalformedCallError("no call of a tool")
    yield from reader.expect("(")
    yield from python_arguments(scan, name)


def python_arguments(scan: Scan, name: str) -> Parsing[None]:
    """The arguments of a call, behind the opening parenthesis, and the closing one."""
    reader = scan.reader
    separator = "{"
    while True:
        yield from reader.space()
        if (yield from reader.accept(")")):
            break
        if separator == "}":
            raise MalformedCallError("no comma")
        key = yield from _keyword(scan)
        if separator == "{":
            scan.open_call(name)
        scan.events.arguments(f"{separator}{quoted(key)}: ")
        yield from python_value(reader, scan.events.arguments)
        yield from reader.space()
        separator = ", " if (yield from reader.accept(",")) else "}"
    if separator == "{":
        scan.open_call(name)
        scan.events.arguments("{")
    scan.events.arguments("}")
    scan.close_call()


def _keyword(scan: Scan) -> Parsing[str]:
    reader = scan.reader
    key = yield from reader.word(_KEY)
    yield from reader.space()
    if not key or not (yield from reader.accept("=")):
        raise MalformedCallError("an argument without a keyword", key)
    yield from reader.space()
    return key
