"""Grammars in GBNF, the notation of llama.cpp that xgrammar and vLLM call EBNF.

    root   ::= "SELECT " column (", " column)* " FROM " table   # the answer is a root
    column ::= [a-z_]+ | "*"
    table  ::= "users" | "orders"{1,2}

Source: https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md. Every terminal becomes single
characters, so what a grammar means does not depend on how a lexer would cut the text; left recursion is allowed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from octavo.decoding.structured import lark
from octavo.decoding.structured.limits import MAX_GRAMMAR_RULES, MAX_NESTING, MAX_REPETITIONS, MAX_SOURCE_BYTES
from octavo.decoding.structured.problem import ShapeError
from octavo.decoding.structured.regex_dialect import full_match

START = "root"
_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)
    | (?P<text>"(?:[^"\\\n]|\\.)*")
    | (?P<characters>\[(?:[^\]\\\n]|\\.)*\] | \.)
    | (?P<name>[A-Za-z_][A-Za-z0-9_-]*)
    | (?P<defines>::=)
    | (?P<count>\{\s*\d{1,7}\s*(?:,\s*\d{0,7}\s*)?\} | [*+?])
    | (?P<sign>[|()])""",
    re.VERBOSE,
)
_COUNTS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", '"': '"', "'": "'", "\\": "\\", "[": "[", "]": "]", "-": "-"}
_ANY_CHARACTER = "(?s:.)"


@dataclass(frozen=True)
class _Terminal:
    """Characters as the backend writes them."""

    written: str


@dataclass(frozen=True)
class _Name:
    name: str


@dataclass(frozen=True)
class _Sequence:
    parts: "tuple[_Node, ...]"


@dataclass(frozen=True)
class _Choice:
    options: "tuple[_Node, ...]"


@dataclass(frozen=True)
class _Repetition:
    part: "_Node"
    least: int
    most: int | None


_Node = _Terminal | _Name | _Sequence | _Choice | _Repetition


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int


def gbnf_rules(source: str) -> list[str]:
    """The backend's rules of a grammar, `start` among them.

    Raises:
        ShapeError: it is no grammar, too large, or has no finite text; names the line or the rule.
    """
    if len(source) > MAX_SOURCE_BYTES:
        raise ShapeError(f"the grammar has more than {MAX_SOURCE_BYTES} characters")
    rules = _Parser(_tokens(source)).parse()
    finite = _finite(rules)
    if START not in finite:
        raise ShapeError(f"the rule {START!r} has no finite text: it needs itself again and again")
    return _Writer(rules, finite).write()


def _tokens(source: str) -> list[_Token]:
    tokens: list[_Token] = []
    at, line = 0, 1
    while at < len(source):
        found = _TOKEN.match(source, at)
        if found is None or found.lastgroup is None:
            raise ShapeError(f"cannot be read from {source[at : at + 20]!r} on; {_EXPECTED}", f"line {line}")
        if found.lastgroup != "space":
            tokens.append(_Token(found.lastgroup, found.group(), line))
        line += found.group().count("\n")
        at = found.end()
    return tokens


_EXPECTED = 'grammars are GBNF, with rules like: root ::= "yes" | "no"'


class _Parser:
    """Reads rules. A rule ends where the next one begins."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def parse(self) -> dict[str, _Node]:
        rules: dict[str, _Node] = {}
        used: dict[str, int] = {}
        while self._at < len(self._tokens):
            name = self._take("name")
            if name is None or self._take("defines") is None:
                raise self._problem(f"a rule was expected; {_EXPECTED}")
            if name in rules:
                raise self._problem(f"the rule {name!r} is defined twice")
            rules[name] = self._choice()
            if len(rules) > MAX_GRAMMAR_RULES:
                raise self._problem(f"more than {MAX_GRAMMAR_RULES} rules")
        for token in self._tokens:
            used.setdefault(token.text, token.line) if token.kind == "name" else None
        for name in (START, *used):
            if name not in rules:
                raise ShapeError(f"there is no rule {name!r}; {_EXPECTED}", f"line {used.get(name, 1)}")
        return rules

    def _choice(self) -> _Node:
        options = [self._sequence()]
        while self._take("sign", "|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else _Choice(tuple(options))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while (part := self._part()) is not None:
            while (count := self._take("count")) is not None:
                part = self._repetition(part, count)
            parts.append(part)
        return parts[0] if len(parts) == 1 else _Sequence(tuple(parts))

    def _part(self) -> _Node | None:
        """None: the sequence is over."""
        if (text := self._take("text")) is not None:
            return _Terminal(lark.spelled(self._unescaped(text[1:-1]), {}))
        if (characters := self._take("characters")) is not None:
            return _Terminal(lark.regex(_ANY_CHARACTER if characters == "." else self._class(characters)))
        if self._take("sign", "("):
            self._depth += 1
            if self._depth > MAX_NESTING:
                raise self._problem(f"groups nest deeper than {MAX_NESTING}")
            inner = self._choice()
            self._depth -= 1
            if not self._take("sign", ")"):
                raise self._problem("a closing parenthesis was expected")
            return inner
        after = self._tokens[self._at + 1 : self._at + 2]
        if after and after[0].kind == "defines":
            return None
        name = self._take("name")
        return None if name is None else _Name(name)

    def _repetition(self, part: _Node, count: str) -> _Node:
        least, most = _COUNTS.get(count) or self._counted(count)
        if most is not None and most < least:
            raise self._problem(f"a repetition from {least} to {most}")
        if max(least, most or 0) > MAX_REPETITIONS:
            raise self._problem(f"{count}: at most {MAX_REPETITIONS} repetitions are supported")
        return _Repetition(part, least, most)

    @staticmethod
    def _counted(count: str) -> tuple[int, int | None]:
        least, comma, most = count[1:-1].partition(",")
        return int(least), (int(most) if most.strip() else None) if comma else int(least)

    def _class(self, characters: str) -> str:
        try:
            return full_match(characters)
        except ShapeError as error:
            raise self._problem(error.problem) from None

    def _unescaped(self, text: str) -> str:
        def character(found: re.Match[str]) -> str:
            digits = found[1] or found[2] or found[3]
            code = int(digits, 16) if digits else ord(_ESCAPED.get(found[4], "\ud800"))
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise self._problem(f"{found[0]!r} is no escape of a character")
            return chr(code)

        return _ESCAPE.sub(character, text)

    def _take(self, kind: str, text: str | None = None) -> str | None:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is None or token.kind != kind or (text is not None and token.text != text):
            return None
        self._at += 1
        return token.text

    def _problem(self, problem: str) -> ShapeError:
        token = self._tokens[min(self._at, len(self._tokens) - 1)]
        return ShapeError(problem, f"line {token.line}")


def _finite(rules: Mapping[str, _Node]) -> frozenset[str]:
    """Names of the rules that have a finite text: the least fixed point."""
    finite: frozenset[str] = frozenset()
    while True:
        more = frozenset(name for name, node in rules.items() if _has_finite_text(node, finite))
        if more == finite:
            return finite
        finite = more


def _has_finite_text(node: _Node, finite: frozenset[str]) -> bool:
    if isinstance(node, _Name):
        return node.name in finite
    if isinstance(node, _Sequence):
        return all(_has_finite_text(part, finite) for part in node.parts)
    if isinstance(node, _Choice):
        return any(_has_finite_text(option, finite) for option in node.options)
    if isinstance(node, _Repetition):
        return node.least == 0 or _has_finite_text(node.part, finite)
    return True


@dataclass
class _Writer:
    """Writes the rules that can be reached, without what has no finite text."""

    rules: Mapping[str, _Node]
    finite: frozenset[str]
    written: dict[str, str] = field(default_factory=dict)
    """Name -> the backend's name of it, in the order in which they are met."""

    def write(self) -> list[str]:
        lines = [f"start: {self._name(START)}"]
        done = 0
        while done < len(self.written):  # writing one rule meets others
            name = list(self.written)[done]
            lines.append(f"{self.written[name]}: {self._node(self.rules[name])}")
            done += 1
        return lines

    def _name(self, name: str) -> str:
        return self.written.setdefault(name, f"r{len(self.written)}")

    def _node(self, node: _Node) -> str:
        if isinstance(node, _Terminal):
            return node.written
        if isinstance(node, _Name):
            return self._name(node.name)
        if isinstance(node, _Sequence):
            return " ".join(self._group(part) for part in node.parts) or lark.NOTHING
        if isinstance(node, _Choice):
            return " | ".join(self._group(o) for o in node.options if _has_finite_text(o, self.finite))
        if not _has_finite_text(node.part, self.finite):
            return lark.NOTHING
        most = "" if node.most is None else node.most
        return f"{self._group(node.part)}{{{node.least},{most}}}"

    def _group(self, node: _Node) -> str:
        return self._node(node) if isinstance(node, _Name) else f"({self._node(node)})"
