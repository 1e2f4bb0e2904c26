"""Follows an answer's tokens through its reasoning, and ends that where the budget is used up."""

from collections import deque
from collections.abc import Iterable
from copy import copy
from enum import Enum, auto

from octavo.request.reasoning import Marker, ReasoningSpec


class ReasoningPhase(Enum):
    """Where the next token of an answer will stand."""

    BEFORE = auto()
    """No reasoning has begun yet."""
    INSIDE = auto()
    BEHIND = auto()
    """Reasoning is over; what follows is the answer proper."""


class ReasoningTracker:
    """The state of one request: a pure function of its spec and its output tokens, so replaying these restores it.

        <think> r r r </think> a a            budget 5: the model ends by itself
        <think> r r r r r F F F a a           budget 5: F is `forced_end`

    The budget counts tokens behind the begin marker, an end marker that comes by itself included; all parts together
    where reasoning may reopen. An end marker of several tokens that the budget cuts is written whole again.

    For grammars: while `is_free` no mask applies and tokens are not shown to the grammar; else one does, and before an
    answer's first token it also allows `opening_ids`.
    """

    def __init__(self, spec: ReasoningSpec, output_token_ids: Iterable[int] = ()) -> None:
        self.phase = ReasoningPhase.INSIDE if spec.is_open else ReasoningPhase.BEFORE
        self._spec = spec
        self._left = spec.budget
        """Tokens of the budget for this part of the reasoning; negative: no limit."""
        self._num_inside = 0
        """Tokens of this part so far, forced ones included."""
        self._num_outputs = 0
        longest = max(len(marker) for marker in (*spec.ends, *spec.begins))
        self._recent: deque[int] = deque(maxlen=longest)
        """Last tokens since the last marker."""
        for token_id in output_token_ids:
            self.push(token_id)

    def behind(self, token_id: int) -> "ReasoningTracker":
        """Another tracker, one token further; this one stays where it is."""
        further = copy(self)
        further._recent = self._recent.copy()
        further.push(token_id)
        return further

    @property
    def forced_token(self) -> int | None:
        """The token that must come next; None: it is drawn."""
        if self.phase is not ReasoningPhase.INSIDE or self._left < 0 or self._num_inside < self._left:
            return None
        return self._spec.forced_end[self._num_inside - self._left]

    @property
    def is_free(self) -> bool:
        """Whether the next token belongs to reasoning, or to a begin marker that an answer has started with."""
        return self.phase is ReasoningPhase.INSIDE or (self._num_outputs > 0 and bool(self.opening_ids))

    @property
    def opening_ids(self) -> tuple[int, ...]:
        """Tokens that would go on a begin marker, as long as the whole answer is the beginning of one."""
        if self.phase is not ReasoningPhase.BEFORE or self._num_outputs > len(self._recent):
            return ()
        written = tuple(self._recent)
        following = (begin[len(written)] for begin in self._spec.begins if self._goes_on(begin, written))
        return tuple(dict.fromkeys(following))

    @staticmethod
    def _goes_on(begin: Marker, written: Marker) -> bool:
        return len(begin) > len(written) and begin[: len(written)] == written

    def push(self, token_id: int) -> None:
        """Takes in the next output token."""
        is_forced = self.forced_token is not None
        self._recent.append(token_id)
        self._num_outputs += 1
        if self.phase is ReasoningPhase.INSIDE:
            self._num_inside += 1
            if self._is_forced_whole() if is_forced else self._ends_with(self._spec.ends):
                self._close()
        elif (self.phase is ReasoningPhase.BEFORE or self._spec.reopens) and self._ends_with(self._spec.begins):
            self.phase, self._num_inside = ReasoningPhase.INSIDE, 0
            self._recent.clear()

    def _is_forced_whole(self) -> bool:
        return self._num_inside == self._left + len(self._spec.forced_end)

    def _ends_with(self, markers: tuple[Marker, ...]) -> bool:
        recent = tuple(self._recent)
        return any(recent[-len(marker) :] == marker for marker in markers)

    def _close(self) -> None:
        self.phase = ReasoningPhase.BEHIND
        if self._left >= 0:
            self._left = max(0, self._left - self._num_inside)
        self._recent.clear()
