"""Finds out that the end of an answer repeats itself, one token at a time."""

from collections import defaultdict, deque
from collections.abc import Iterable

from octavo.request.repetition import RepetitionDetection


class RepetitionDetector:
    """Whether the last tokens are `min_count` copies of one pattern of an allowed size.

    For each distance d the detector knows how many of the last tokens, without a gap, are equal to those d before
    them. The end is c copies of a pattern of d tokens if these are at least d (c - 1):

        ... x | a b | a b | a b        d = 2: the last 4 are equal to those 2 before, so 3 copies
                      = =   = =

    A token changes only the distances at which its like stands, so it costs as much as it has occurred among the last
    `max_pattern_size`, at most that many small steps, and nothing grows with the answer.
    """

    def __init__(self, detection: RepetitionDetection, token_ids: Iterable[int] = ()) -> None:
        self._largest = detection.max_pattern_size
        self._smallest = max(1, detection.min_pattern_size)
        self._num_equal_copies = detection.min_count - 1
        self._runs: dict[int, int] = {}
        """Distance -> how many of the last tokens are equal to those so far before them; where it is none, no entry."""
        self._window: deque[int] = deque(maxlen=max(1, self._largest))
        self._places: defaultdict[int, deque[int]] = defaultdict(deque)
        """Token id -> where it stands in the window, oldest first."""
        self._num_tokens = 0
        for token_id in token_ids:
            self.push(token_id)

    def push(self, token_id: int) -> bool:
        """Takes in the next token; whether a repetition is complete with it."""
        if self._largest == 0:
            return False
        place, runs = self._num_tokens, self._runs
        distances = [place - other for other in reversed(self._places[token_id])]
        self._runs = {d: runs.get(d, 0) + 1 for d in distances if d >= self._smallest}
        self._remember(token_id, place)
        return any(run >= d * self._num_equal_copies for d, run in self._runs.items())

    def _remember(self, token_id: int, place: int) -> None:
        if len(self._window) == self._largest:
            oldest = self._window[0]
            self._places[oldest].popleft()
            if not self._places[oldest]:
                del self._places[oldest]
        self._window.append(token_id)
        self._places[token_id].append(place)
        self._num_tokens += 1
