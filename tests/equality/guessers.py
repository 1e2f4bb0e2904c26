"""Proposers that are right always, never, or now and then."""

import random
from collections.abc import Callable, Iterable, Sequence

from octavo.execution.protocols import RanStep, SlotArrays
from octavo.scheduling.plan import NewRequestData
from tests.equality.transcript import Answer


class Guesser:
    """Knows the tokens in each slot; what it guesses others say."""

    def __init__(self, guess: Callable[[list[int], int], Sequence[int]]) -> None:
        self._guess = guess
        self._tokens: dict[int, list[int]] = {}

    def add(self, slot: int, request: NewRequestData) -> None:
        """See `Proposer`."""
        assert slot not in self._tokens
        self._tokens[slot] = list(request.token_ids)

    def remove(self, slot: int) -> None:
        """See `Proposer`."""
        del self._tokens[slot]

    def propose(
        self, slots: Sequence[int], most: Sequence[int], least_chance: float, held: SlotArrays
    ) -> list[Sequence[int]]:
        """See `Proposer`. What the runner holds is what has been told."""
        for slot in slots:
            assert held.tokens[slot, : held.num_tokens[slot]].tolist() == self._tokens[slot]
        return [self._guess(self._tokens[slot], count) for slot, count in zip(slots, most, strict=True)]

    def ran(self, step: RanStep) -> tuple[int, ...]:
        """See `Proposer`."""
        for slot, token_ids in step.drawn.items():
            if slot in self._tokens:
                self._tokens[slot] += token_ids
        return ()

    def close(self) -> None:
        """See `Proposer`."""


class Oracle:
    """Has seen all answers. Where several begin alike it takes one of them."""

    def __init__(self, answers: Iterable[Answer]) -> None:
        self._texts = [
            (len(answer.prompt_token_ids), [*answer.prompt_token_ids, *choice.token_ids])
            for answer in answers
            for choice in answer.choices
        ]

    def right(self, known: list[int], most: int) -> Sequence[int]:
        """What came."""
        for num_prompt, text in self._texts:
            if num_prompt <= len(known) < len(text) and text[: len(known)] == known:
                return text[len(known) : len(known) + most]
        return ()

    def wrong(self, known: list[int], most: int) -> Sequence[int]:
        """What did not come."""
        return [token_id ^ 1 for token_id in self.right(known, most)] or [8] * most

    def half_right(self, known: list[int], most: int) -> Sequence[int]:
        """A beginning of what came, then tokens of any kind, those that there are not included."""
        chance = random.Random(len(known) + 31 * known[-1])
        come = list(self.right(known, chance.randint(0, most)))
        return [*come, *[chance.choice((-1, 0, 1, 2, 77, 10**6, 9)) for _ in range(chance.randint(0, 4))]][:most]


def seen_before(known: list[int], most: int) -> Sequence[int]:
    """What came where the last token stood before: the plainest look-up."""
    places = [place for place in range(len(known) - 1) if known[place] == known[-1]]
    return known[places[-1] + 1 : places[-1] + 1 + most] if places else ()


def fails(known: list[int], most: int) -> Sequence[int]:
    """Raises now and then."""
    if len(known) % 5 == 0:
        raise ArithmeticError("no guess")
    return seen_before(known, most)
