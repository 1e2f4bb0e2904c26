"""What is asked: plain data that the data sets make and the generator sends."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

Messages = tuple[dict[str, Any], ...]
Prompt = str | tuple[int, ...] | Messages
"""A text, token ids (completions only), or messages (chat only)."""


@dataclass(frozen=True)
class Turn:
    """One request. In a dialogue it follows what was said before it, answers included."""

    prompt: Prompt
    output_len: int | None = None
    """Tokens asked for at most; None: as many as the server likes."""
    input_len: int | None = None
    """Tokens that this turn's prompt was made of, where a data set knows."""
    hang_up_after: int | None = None
    """Chunks after which we hang up, on purpose; None: never."""


@dataclass(frozen=True)
class Dialogue:
    """Requests that one user sends one after another; mostly a single one."""

    turns: tuple[Turn, ...]
    at_s: float | None = None
    """When the data set says that it begins, in seconds of its own clock."""
    slo: str | None = None
    """Its class of service; None: judged by every class."""
    think_s: float = 0.0
    """From an answer's end to the next turn."""


def with_hang_ups(dialogues: Sequence[Dialogue], share: float, seed: int) -> list[Dialogue]:
    """As given, but so large a share of the requests will be given up by us, each after a number of chunks that is
    drawn evenly from 1 to its `output_len` - 1 (16 where it has none)."""
    draw = Random(f"hang-ups {seed}")

    def drawn(turn: Turn) -> Turn:
        hangs_up, after = draw.random() < share, draw.randint(1, max(1, (turn.output_len or 17) - 1))
        return replace(turn, hang_up_after=after) if hangs_up else turn

    return [replace(dialogue, turns=tuple(map(drawn, dialogue.turns))) for dialogue in dialogues]
