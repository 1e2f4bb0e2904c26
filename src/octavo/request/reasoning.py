"""Where the reasoning in an answer begins and ends, as token ids, and how long it may be."""

import msgspec

from octavo.errors import InvalidRequestError

Marker = tuple[int, ...]
"""Token ids that stand one behind the other."""
MAX_MARKER_SIZE = 64
_FIELD = "thinking_token_budget"


class ReasoningSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the engine has to know of a model's reasoning: for a budget, and for grammars, which bind only the answer
    behind it. Made by whoever knows the model's markers; the engine has no texts.

    Raises:
        InvalidRequestError: a budget without markers to count from or an end to force.
    """

    ends: tuple[Marker, ...]
    """Any of these ends reasoning."""
    begins: tuple[Marker, ...] = ()
    """Any of these begins it."""
    is_open: bool = False
    """The prompt ends inside reasoning."""
    reopens: bool = False
    """Reasoning may begin again after its end; else a later begin marker is text."""
    budget: int = -1
    """Most tokens of reasoning in the answer, markers not counted; -1: any number."""
    forced_end: Marker = ()
    """What is written in place of drawn tokens when the budget is used up."""

    def __post_init__(self) -> None:
        if type(self.budget) is not int or not -1 <= self.budget < 2**31:
            raise InvalidRequestError(_FIELD, self.budget, "must be -1 (no limit) or a number of tokens")
        if self.budget >= 0 and not self.forced_end:
            raise InvalidRequestError(_FIELD, self.budget, "this model's reasoning has no end that can be forced")
        markers = (*self.ends, *self.begins, self.forced_end or (0,))
        if not self.ends or not all(0 < len(marker) <= MAX_MARKER_SIZE for marker in markers):
            problem = f"the markers of reasoning must have 1 to {MAX_MARKER_SIZE} tokens, and an end there must be"
            raise InvalidRequestError(_FIELD, markers, problem)

    def token_ids(self) -> list[int]:
        """All ids that are named."""
        return [i for marker in (*self.ends, *self.begins, self.forced_end) for i in marker]
