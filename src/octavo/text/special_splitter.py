"""Finds the spellings of special tokens in text: leftmost first, longest at each place."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

WINDOW_CHARS = 2**16
"""Searched in one go: about a millisecond."""


class SpecialSplitter:
    """Cuts text into plain stretches and special token ids.

    Spellings are indexed by their first two characters. A pattern of several thousand alternatives would try
    each of them at every `<` of a text; here a place costs one look-up per distinct length among the
    spellings that begin alike.
    """

    def __init__(self, id_by_spelling: Mapping[str, int]) -> None:
        self._id_by_spelling = {spelling: i for spelling, i in id_by_spelling.items() if spelling}
        self._head_size = min(2, min(map(len, self._id_by_spelling), default=1))
        lengths: dict[str, set[int]] = defaultdict(set)
        for spelling in self._id_by_spelling:
            lengths[spelling[: self._head_size]].add(len(spelling))
        self._lengths_by_head = {head: sorted(found, reverse=True) for head, found in lengths.items()}
        # A look-ahead, because a place that turns out to hold no spelling must not hide the next one.
        self._heads = re.compile("(?=" + "|".join(map(re.escape, self._lengths_by_head)) + ")")

    def split(self, text: str) -> Iterator[str | int]:
        """Non-empty plain stretches and ids of special tokens, in order."""
        done = 0
        for start in self._places(text) if self._id_by_spelling else ():
            spelling = self._longest_at(text, start) if start >= done else None
            if spelling is None:
                continue
            if start > done:
                yield text[done:start]
            yield self._id_by_spelling[spelling]
            done = start + len(spelling)
        if done < len(text):
            yield text[done:]

    def _places(self, text: str) -> Iterator[int]:
        """Where a spelling may begin. Searched window by window: a search that finds nothing in megabytes would let no
        other thread run meanwhile.

        window     |--------------|          the look-ahead of its last place reaches so far
                                  |---|      beyond it: head_size - 1 characters
        """
        for window in range(0, len(text), WINDOW_CHARS):
            end = window + WINDOW_CHARS
            for place in self._heads.finditer(text, window, end + self._head_size - 1):
                if place.start() < end:
                    yield place.start()

    def _longest_at(self, text: str, start: int) -> str | None:
        for length in self._lengths_by_head[text[start : start + self._head_size]]:
            if (candidate := text[start : start + length]) in self._id_by_spelling:
                return candidate
        return None
