"""What an answer is made of, in the order in which it is written."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More of the text that the user reads. Never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks before it answers. Never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A call begins; it will end, whatever happens."""

    index: int
    """Place among the calls of the answer, from 0."""
    id: str | None
    """What the caller's id maker gave; None where there is no maker."""
    name: str
    """Name of the function, as the model wrote it."""


@dataclass(frozen=True, slots=True)
class ToolCallArgumentsDelta:
    """More of the arguments' JSON text. Never empty. The deltas of a call concatenate to its arguments."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    """The arguments are whole, or nothing more comes of them."""

    index: int
    complete: bool
    """True: the arguments are a JSON object. False: they are the beginning of one, because the answer was cut off or
    the model lost the thread; what it wrote from there on is content."""


AnswerEvent = ContentDelta | ReasoningDelta | ToolCallStart | ToolCallArgumentsDelta | ToolCallEnd


def merged(events: Iterable[AnswerEvent]) -> tuple[AnswerEvent, ...]:
    """The same answer with adjacent deltas of one kind as one event."""
    whole: list[AnswerEvent] = []
    for _, group in groupby(events, _kind):
        first, *others = group
        match first:
            case ContentDelta() | ReasoningDelta() | ToolCallArgumentsDelta():
                texts = [event.text for event in others if isinstance(event, type(first))]
                whole.append(replace(first, text="".join((first.text, *texts))))
            case _:
                whole += [first, *others]
    return tuple(whole)


def _kind(event: AnswerEvent) -> tuple[type[AnswerEvent], int]:
    match event:
        case ContentDelta() | ReasoningDelta():
            return type(event), 0
        case _:
            return type(event), event.index
