"""A draft head: a small program that guesses what a target model says next from what that has computed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from octavo.model.header import CheckpointHeader
from octavo.model.program import Program
from octavo.model.sources import WeightSource

HIDDEN = "hidden"
"""The head's input, and its output to be given back as input for the next token."""


@dataclass(frozen=True)
class HeadDefinition:
    """A head for one target, and where its weights come from.

    The head runs at position p with the id of the token at p + 1 and the row `hidden` of position p: a row of the
    target's `features`, or its own output `hidden` where the target has not been there yet. Its `logits` are about the
    token at p + 2.
    """

    program: Program
    """Input `hidden`; outputs `logits` and `hidden`, both over `rows`."""
    target: Program
    """The target's program, which also computes `features`."""
    sources: Mapping[str, WeightSource]
    """In the head's checkpoint: weights of the head that are not borrowed, and those that `target` has more than it
    had. No name stands for one of each."""
    borrowed: Mapping[str, str]
    """Weights of the head that are weights of the target: name here -> name there."""
    ignored_tensors: tuple[str, ...] = ()
    """As in `ModelDefinition`."""
    offsets: str | None = None
    """The integer tensor `[rows of the logits]` that says how far the id of each guess is from its row; None: rows are
    ids."""


@dataclass(frozen=True)
class HeadLayout:
    """One layout of checkpoints: what it is called, how it is told, and who reads it."""

    name: str
    matches: Callable[[CheckpointHeader], bool]
    define: Callable[[CheckpointHeader, Program], HeadDefinition]
    """Header of the head's checkpoint, the target's program -> definition. Raises ModelFileError for settings that are
    missing, absurd or do not fit the target, UnsupportedModelError for features it does not compute; both name key and
    value."""
