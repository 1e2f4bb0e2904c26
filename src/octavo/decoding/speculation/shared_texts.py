"""Answers of requests that are over, for drafts of others of the same tenant and salt."""

from collections import OrderedDict
from collections.abc import Sequence

from octavo import _native
from octavo.decoding.speculation.proposer import NO_DRAFT, Draft, DraftedRequest
from octavo.decoding.speculation.suffix import MIN_CHANCE, valid_chance

MAX_SHARED_TOKENS = 1 << 18
"""Of all texts together; about 100 bytes each."""
MAX_TAIL = 32
"""Tokens of a request that are looked up in the texts of others."""
_BETWEEN_TEXTS = -1

Owner = tuple[str, str | None]
"""Tenant and salt."""


class _Shelf:
    """The texts of one owner. An automaton cannot forget, so there are two: the old one is dropped when the young one
    is full, and that becomes the old."""

    def __init__(self, max_tokens: int) -> None:
        self._max_young = max_tokens // 2
        self._young = _native.SuffixAutomaton()
        self._old: _native.SuffixAutomaton | None = None

    def __len__(self) -> int:
        return len(self._young) + (0 if self._old is None else len(self._old))

    @property
    def num_bytes(self) -> int:
        return sum(generation.num_bytes for generation in self._generations())

    def add(self, token_ids: Sequence[int]) -> None:
        """Takes in a text; of one that is too long, its end."""
        text = [*token_ids[-(self._max_young - 1) :], _BETWEEN_TEXTS]
        if len(self._young) + len(text) > self._max_young:
            self._old, self._young = self._young, _native.SuffixAutomaton()
        self._young.extend(text)

    def drop_older(self) -> bool:
        """Forgets the older half; whether there is anything left."""
        if self._old is None:
            return False
        self._old = None
        return len(self) > 0

    def draft(self, tail: Sequence[int], most: int, min_chance: float) -> Draft:
        """Of the two generations' guesses the one of which more is expected; of equals the young one's."""
        best = NO_DRAFT
        for generation in self._generations():
            token_ids, chances, _ = generation.draft_after(tail, most, min_chance)
            draft = Draft(token_ids, chances)
            if draft.expected > best.expected:
                best = draft
        return best

    def _generations(self) -> list[_native.SuffixAutomaton]:
        return [self._young] if self._old is None else [self._young, self._old]


class SharedTexts:
    """Shelves by owner, with a bound on all of them together. Whoever has not been written to for the longest time
    loses the older half of the texts, then the rest."""

    def __init__(self, max_tokens: int = MAX_SHARED_TOKENS) -> None:
        """Raises ValueError unless max_tokens >= 4."""
        if max_tokens < 4:
            raise ValueError(f"max_tokens={max_tokens} must be at least 4")
        self._max_tokens = max_tokens
        self._shelves: OrderedDict[Owner, _Shelf] = OrderedDict()
        self._num_tokens = 0

    @property
    def num_tokens(self) -> int:
        """Tokens kept, one between texts included; never more than `max_tokens`."""
        return self._num_tokens

    @property
    def num_bytes(self) -> int:
        """Memory of all shelves."""
        return sum(shelf.num_bytes for shelf in self._shelves.values())

    def add(self, owner: Owner, token_ids: Sequence[int]) -> None:
        """Takes in a text."""
        shelf = self._shelves.setdefault(owner, _Shelf(self._max_tokens))
        self._shelves.move_to_end(owner)
        self._num_tokens -= len(shelf)
        shelf.add(token_ids)
        self._num_tokens += len(shelf)
        while self._num_tokens > self._max_tokens:
            self._shrink()

    def draft(self, owner: Owner, tail: Sequence[int], most: int, min_chance: float) -> Draft:
        """What followed the end of `tail` in the owner's texts."""
        shelf = self._shelves.get(owner)
        return NO_DRAFT if shelf is None else shelf.draft(tail, most, min_chance)

    def _shrink(self) -> None:
        owner, shelf = next(iter(self._shelves.items()))
        self._num_tokens -= len(shelf)
        if shelf.drop_older():
            self._num_tokens += len(shelf)
        else:
            del self._shelves[owner]


class _Listener:
    """One request: its last tokens, and what it has written since it came to its slot."""

    def __init__(self, request: DraftedRequest) -> None:
        self.owner: Owner = (request.tenant, request.cache_salt)
        self.tail = request.token_ids[-MAX_TAIL:]
        self.written: list[int] = []

    def extend(self, token_ids: Sequence[int]) -> None:
        self.written.extend(token_ids)
        self.tail = [*self.tail, *token_ids][-MAX_TAIL:]


class SharedSuffixProposer:
    """A `Proposer` from answers that are over, of the same tenant and salt only: see docs/security.md on timing.

    Prompts are not kept: they come from outside, and each request has its own at hand. What a request wrote before a
    preemption was taken in then, and is not counted twice.
    """

    def __init__(self, texts: SharedTexts | None = None, min_chance: float = MIN_CHANCE) -> None:
        """Raises ValueError unless 0 <= min_chance < 1."""
        self._texts = SharedTexts() if texts is None else texts
        self._min_chance = valid_chance(min_chance)
        self._listeners: dict[int, _Listener] = {}

    def add(self, slot: int, request: DraftedRequest) -> None:
        """See `Proposer`."""
        self._listeners[slot] = _Listener(request)

    def extend(self, slot: int, token_ids: Sequence[int]) -> None:
        """See `Proposer`."""
        self._listeners[slot].extend(token_ids)

    def remove(self, slot: int) -> None:
        """See `Proposer`."""
        listener = self._listeners.pop(slot)
        if listener.written:
            self._texts.add(listener.owner, listener.written)

    def propose(self, slots: Sequence[int], max_tokens: Sequence[int]) -> list[Draft]:
        """See `Proposer`."""
        listeners = [self._listeners[slot] for slot in slots]
        return [
            self._texts.draft(listener.owner, listener.tail, most, self._min_chance)
            for listener, most in zip(listeners, max_tokens, strict=True)
        ]
