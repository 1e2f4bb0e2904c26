"""Stop strings in a stream of text."""

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class StopMatch:
    """Text that is safe to emit, and the stop string that has been completed, if any."""

    text: str
    stop: str | None = None


class StopStringMatcher:
    """Finds the first completed stop string in text that comes in pieces, however it is cut.

    The match is the one that ends first; of several that end at the same character, the one that begins
    first. (Not simply the one that begins first: `ab` in `xab` is complete, and generation must stop there,
    although `xabc` might still follow.) Each stop string is followed by its Knuth-Morris-Pratt automaton, one
    step per character, so the answer cannot depend on how the text was cut, and the cost per character
    depends neither on the text's length nor on those of the stop strings.
    """

    def __init__(self, stops: Sequence[str], *, include_stop: bool = False) -> None:
        """
        Args:
            stops: strings that end the text; may be empty.
            include_stop: the emitted text ends with the stop string instead of before it.

        Raises:
            InvalidRequestError: an empty stop string.
        """
        if not all(stops):
            raise InvalidRequestError("stop", tuple(stops), "must not hold an empty string")
        # Longest first: the first to complete at a character is then the one that began first.
        self._automata = [_Automaton(stop) for stop in sorted(set(stops), key=len, reverse=True)]
        self._first_characters = frozenset(stop[0] for stop in stops)
        self._include_stop = include_stop
        self._held = ""
        """Text taken but not yet emitted: the longest suffix that could begin a stop string."""

    def feed(self, delta: str) -> StopMatch:
        """Takes more text. After a match, text that follows it is dropped and nothing more may be fed."""
        if not self._held and self._first_characters.isdisjoint(delta):
            return StopMatch(delta)
        for at, character in enumerate(delta):
            for automaton in self._automata:
                if automaton.step(character):
                    return self._matched(self._held + delta[: at + 1], automaton.stop)
        text = self._held + delta
        keep = max((automaton.matched for automaton in self._automata), default=0)
        emitted, self._held = text[: len(text) - keep], text[len(text) - keep :]
        return StopMatch(emitted)

    def flush(self) -> str:
        """The text held back, when no more comes."""
        held, self._held = self._held, ""
        return held

    def _matched(self, text: str, stop: str) -> StopMatch:
        self._held = ""
        return StopMatch(text if self._include_stop else text[: len(text) - len(stop)], stop)


class _Automaton:
    """Knuth, Morris, Pratt (1977): how much of one string the text seen so far ends with."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        """Length of the longest prefix of `stop` that is a suffix of the text."""
        self._fallback = _fallbacks(stop)

    def step(self, character: str) -> bool:
        """Takes one character; True if it completes the string."""
        matched = self.matched
        while matched and self.stop[matched] != character:
            matched = self._fallback[matched - 1]
        if self.stop[matched] == character:
            matched += 1
        self.matched = matched
        return matched == len(self.stop)


def _fallbacks(stop: str) -> list[int]:
    """For each prefix of `stop`, the length of its longest proper prefix that is also its suffix."""
    lengths = [0] * len(stop)
    for at in range(1, len(stop)):
        length = lengths[at - 1]
        while length and stop[length] != stop[at]:
            length = lengths[length - 1]
        lengths[at] = length + (stop[length] == stop[at])
    return lengths
