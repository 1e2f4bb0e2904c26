"""Everything that can be seen of an answer, as a flat list of facts that can be compared exactly."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from octavo.engine.output import ChoiceDelta, GenerationDelta, GenerationOutput
from octavo.request.outputs import LogprobRow


class Fact(NamedTuple):
    """One thing that an answer shows: where, and what."""

    place: str
    value: object


Transcript = tuple[Fact, ...]
"""In the order in which an answer comes into being, so that the first difference is nearest to its cause."""

Transcripts = Mapping[str, Transcript]
"""By the name of the request."""

_MISSING = Fact("nothing", "nothing")


def exact(value: float) -> str:
    """A float by its bits, readable: equal texts are equal bits, 0.0 and -0.0 differ."""
    return f"{value!r} (0x{struct.pack('>d', value).hex()})"


class Answer:
    """A whole answer, made of deltas."""

    def __init__(self, num_choices: int) -> None:
        self.prompt_token_ids: tuple[int, ...] = ()
        self.prompt_logprobs: tuple[LogprobRow | None, ...] | None = None
        self.choices = [AnswerChoice() for _ in range(num_choices)]

    @classmethod
    def whole(cls, output: GenerationOutput) -> "Answer":
        """An answer that came in one piece."""
        answer = cls(len(output.outputs))
        answer.prompt_token_ids = output.prompt_token_ids
        answer.prompt_logprobs = output.prompt_logprobs
        for choice, given in zip(answer.choices, output.outputs, strict=True):
            choice.text, choice.token_ids = given.text, list(given.token_ids)
            choice.logprobs = None if given.logprobs is None else list(given.logprobs)
            choice.end = (given.finish_reason, given.stop_reason, given.error)
        return answer

    def add(self, delta: GenerationDelta) -> None:
        """Takes the next piece of any choice."""
        self.prompt_token_ids = delta.prompt_token_ids
        if delta.prompt_logprobs is not None:
            self.prompt_logprobs = delta.prompt_logprobs
        self.choices[delta.choice.index].add(delta.choice)

    def transcript(self) -> Transcript:
        """All facts of the answer."""
        return tuple(self._facts())

    def _facts(self) -> Iterator[Fact]:
        yield Fact("prompt", self.prompt_token_ids)
        for position, row in enumerate(self.prompt_logprobs or ()):
            yield Fact(f"prompt token {position}, logprobs", None if row is None else row_value(row))
        for index, choice in enumerate(self.choices):
            yield from choice.facts(f"choice {index}")


class AnswerChoice:
    """One choice of an answer."""

    def __init__(self) -> None:
        self.text = ""
        self.token_ids: list[int] = []
        self.logprobs: list[LogprobRow] | None = None
        self.end: tuple[object, ...] = ()
        """Finish reason, stop reason, error."""

    def add(self, delta: ChoiceDelta) -> None:
        """Takes the next piece."""
        self.text += delta.text
        self.token_ids += delta.token_ids
        if delta.logprobs is not None:
            self.logprobs = [*(self.logprobs or []), *delta.logprobs]
        self.end = (delta.finish_reason, delta.stop_reason, delta.error)

    def facts(self, place: str) -> Iterator[Fact]:
        """All facts, position by position."""
        rows = [None] * len(self.token_ids) if self.logprobs is None else self.logprobs
        for position, (token_id, row) in enumerate(zip_longest(self.token_ids, rows)):
            yield Fact(f"{place}, token {position}", token_id)
            if row is not None:
                yield Fact(f"{place}, token {position}, logprobs", row_value(row))
        yield Fact(f"{place}, number of tokens", len(self.token_ids))
        yield Fact(f"{place}, text", self.text)
        yield Fact(f"{place}, end", tuple(None if part is None else str(part) for part in self.end))


def row_value(row: LogprobRow) -> tuple[object, ...]:
    """A row of logprobs: rank of the chosen token, then every token listed with its exact logprob."""
    return (f"rank {row.rank}", *zip(row.token_ids, map(exact, row.logprobs), strict=True))


def differences(expected: Transcripts, actual: Transcripts) -> list[str]:
    """One line per request whose transcripts differ: the first place and both values, and how many more differ."""
    names = list(dict.fromkeys([*expected, *actual]))
    compared = [(name, *_unequal(expected.get(name, ()), actual.get(name, ()))) for name in names]
    return [f"request {name!r}: {first}; {count} facts differ" for name, first, count in compared if count]


def _unequal(expected: Sequence[Fact], actual: Sequence[Fact]) -> tuple[str, int]:
    pairs = [pair for pair in zip_longest(expected, actual, fillvalue=_MISSING) if pair[0] != pair[1]]
    if not pairs:
        return "", 0
    (place, wanted), (other_place, got) = pairs[0]
    where = place if place == other_place else f"{place} | {other_place}"
    return f"{where}: expected {_shown(wanted, got)}, got {_shown(got, wanted)}", len(pairs)


def _shown(value: object, other: object) -> str:
    """A value; of two rows or token lists only what differs."""
    if not (isinstance(value, tuple) and isinstance(other, tuple)):
        return repr(value)
    pairs = zip_longest(value, other, fillvalue=_MISSING.value)
    return repr([mine for mine, theirs in pairs if mine != theirs])


def assert_same(expected: Transcripts, actual: Transcripts) -> None:
    """Fails with one line per request that differs."""
    found = differences(expected, actual)
    if found:
        raise AssertionError("\n".join([f"{len(found)} of {len(expected)} requests differ:", *found]))
