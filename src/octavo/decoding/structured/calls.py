"""Tool calls as a grammar: what it accepts, the family's parser reads as exactly these calls."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from octavo.decoding.structured import lark
from octavo.decoding.structured.call_arguments import python_arguments, xml_arguments
from octavo.decoding.structured.json_schema.compile import BackendSchema, backend_schema
from octavo.decoding.structured.problem import ShapeError
from octavo.decoding.structured.regex_dialect import ANYTHING, quoted
from octavo.request.structured import ArgumentSyntax, CallShape, CallsShape

MAX_CALLS = 128
MAX_TOOLS = 128


def calls_rules(shape: CallsShape, specials: Mapping[str, int], *, compact: bool, content: str = "") -> list[str]:
    """The rules of an answer of calls.

    Args:
        shape: the calls.
        specials: spelling -> id of control tokens; where a text of the format holds one, it is that token.
        compact: no white space in JSON.
        content: the rule of an answer that calls nothing; empty: it is a free text.

    Raises:
        ShapeError: a schema that is not supported, or calls that this format cannot hold; names the call.
    """
    if not 1 <= len(shape.calls) <= MAX_TOOLS:
        raise ShapeError(f"{len(shape.calls)} kinds of call; from 1 to {MAX_TOOLS} are supported")
    builder = _Calls(shape, specials, compact)
    if shape.min_calls:
        return builder.block("start", "")
    return builder.calls_or(content) if content else builder.free_answer()


@dataclass
class _Calls:
    shape: CallsShape
    specials: Mapping[str, int]
    compact: bool
    rules: list[str] = field(default_factory=list)

    def block(self, name: str, said: str) -> list[str]:
        """A rule for the calls, from their beginning to their end, but for what has been said of the first one."""
        shape = self.shape
        names = [self._call(f"call_{at}", call) for at, call in enumerate(shape.calls)]
        first = self._first(names, said)
        more = f"({lark.spelled(shape.separator, self.specials)} ({' | '.join(names)})){self._times()}"
        end = lark.spelled(shape.end, self.specials)
        self.rules.append(f"{name}: {first} {more if self._may_repeat() else ''} {end}")
        return self.rules

    def calls_or(self, content: str) -> list[str]:
        """Calls, or an answer of another shape."""
        self._trigger()
        self.rules += ["start: content | block", f"content: {content}"]
        return self.block("block", "")

    def _trigger(self) -> str:
        """What tells a call from other text."""
        if not self.shape.trigger:
            raise ShapeError("calls of this format are not told from other text, so they can only be required")
        return self.shape.trigger

    def free_answer(self) -> list[str]:
        """Text; from the trigger on, a call; text again, and so on."""
        trigger = self._trigger()
        if trigger in self.specials:
            self.rules.append(f"lead: FREE {lark.spelled(trigger, self.specials)}")
            self.rules.append(f"FREE: {lark.regex(ANYTHING)}")
        elif any(special in trigger for special in self.specials):
            raise ShapeError(
                f"what {trigger!r} begins may be something else than a call, so calls can only be required"
            )
        else:
            written = "".join(map(quoted, trigger))
            self.rules.append(f"lead[lazy]: {lark.regex(ANYTHING + written)}")
            self.rules.append(f"FREE: {lark.regex(ANYTHING)} & ~{lark.regex(ANYTHING + written + ANYTHING)}")
        times = "*" if self.shape.max_calls is None else "?"
        self.rules.append(f"start: (lead block){times} FREE")
        return self.block("block", trigger)

    def _first(self, names: list[str], said: str) -> str:
        """The first call with what stands before it, but for the text said already."""
        if not said:
            return f"{lark.spelled(self.shape.begin, self.specials)} ({' | '.join(names)})"
        rests = []
        for name, call in zip(names, self.shape.calls, strict=True):
            text = self.shape.begin + call.begin
            if not text.startswith(said):
                raise ShapeError(f"calls begin with {text[:40]!r}, not with the trigger {said!r}")
            rests.append(f"{lark.spelled(text.removeprefix(said), self.specials)} {name}_rest")
        return f"({' | '.join(rests)})"

    def _may_repeat(self) -> bool:
        return self.shape.max_calls is None or self.shape.max_calls > 1

    def _times(self) -> str:
        """How often a further call may come."""
        least, most = max(0, self.shape.min_calls - 1), self.shape.max_calls
        if not (least < MAX_CALLS and (most is None or self.shape.min_calls <= most <= MAX_CALLS)):
            raise ShapeError(f"from {self.shape.min_calls} to {most} calls; at most {MAX_CALLS} are supported")
        return f"{{{least},{'' if most is None else most - 1}}}"

    def _call(self, name: str, call: CallShape) -> str:
        """Rules for one kind of call; returns its name."""
        try:
            schema = backend_schema(call.schema, compact=self.compact)
            arguments = SYNTAXES[call.syntax](f"{name}_arguments", schema, self.rules)
        except ShapeError as error:
            raise ShapeError(error.problem, f"{call.begin.strip()[-60:]!r} {error.place}".strip()) from None
        self.rules.append(f"{name}_rest: {arguments} {lark.spelled(call.end, self.specials)}")
        self.rules.append(f"{name}: {lark.spelled(call.begin, self.specials)} {name}_rest")
        return name


def _json_arguments(name: str, schema: BackendSchema, rules: list[str]) -> str:
    rules.append(f"{name}: {lark.one_of_json(as_object(schema.body))}")
    return name


def as_object(body: dict[str, object]) -> dict[str, object]:
    """The schema, of objects only.

    Raises:
        ShapeError: it allows none.
    """
    types = body.get("type", "object")
    if types != "object" and not (isinstance(types, list) and "object" in types):
        raise ShapeError("the schema of arguments must be one of objects", "$.type")
    return {**body, "type": "object"}


def _no_arguments(name: str, schema: BackendSchema, rules: list[str]) -> str:
    raise ShapeError("arguments in this syntax cannot be constrained yet; use tool_choice auto without strict")


SYNTAXES: dict[ArgumentSyntax, Callable[[str, BackendSchema, list[str]], str]] = {
    ArgumentSyntax.JSON: _json_arguments,
    ArgumentSyntax.PYTHON: python_arguments,
    ArgumentSyntax.XML: xml_arguments,
    ArgumentSyntax.ESCAPED: _no_arguments,
}
"""Syntax -> what adds the rules of arguments under a name, and returns what to refer to them by."""
