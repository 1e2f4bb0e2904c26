"""Requests and brute-force answers for the tests of proposers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.request.params import SamplingParams


@dataclass
class Request:
    """A request as proposers see it."""

    token_ids: list[int]
    num_prompt_tokens: int = 0
    params: SamplingParams = field(default_factory=SamplingParams)
    tenant: str = ""
    cache_salt: str | None = None


def longest_ngram(text: Sequence[int], min_n: int, max_n: int) -> tuple[int, int]:
    """(n, place behind the most recent earlier occurrence) of the longest n-gram at the end; (0, 0): none."""
    for n in range(min(max_n, len(text)), min_n - 1, -1):
        for end in range(len(text) - 1, n - 1, -1):
            if text[end - n : end] == text[len(text) - n :]:
                return n, end
    return 0, 0


def self_continued(text: Sequence[int], place: int, count: int) -> list[int]:
    """`count` tokens from a place on, where the text goes on with what is read."""
    known = list(text)
    for i in range(count):
        known.append(known[place + i])
    return known[len(text) :]


def followers(text: Sequence[int], context: Sequence[int]) -> dict[int, tuple[int, int]]:
    """token -> (how often it followed a context, where it did last)."""
    found: dict[int, tuple[int, int]] = {}
    n = len(context)
    for end in range(n, len(text)):
        if list(text[end - n : end]) == list(context):
            found[text[end]] = (found.get(text[end], (0, 0))[0] + 1, end)
    return found


def suffix_draft(
    text: Sequence[int], tail: Sequence[int], most: int, min_chance: float
) -> tuple[list[int], list[float], int]:
    """What `SuffixAutomaton.draft_after` says of a text, by searching it through for every token.

    The context is the longest end of tail + draft that stood in the text, and has a token behind it to draft.
    """
    context = longest_known(text, tail)
    draft: list[int] = []
    chances: list[float] = []
    match, product = len(context), 1.0
    while context and len(draft) < most:
        found = followers(text, context)
        choices = {token: seen for token, seen in found.items() if token >= 0}
        if not choices:
            context = shorter(text, context)
            continue
        best = max(choices, key=lambda token: choices[token])
        total = sum(count for count, _ in found.values())
        chance = choices[best][0] / (total + 2.5 / len(context) ** 1.5)
        product *= chance
        if product < min_chance:
            break
        chances.append(chance)
        draft.append(best)
        context = [*context, best]
    return draft, chances, match


def longest_known(text: Sequence[int], tail: Sequence[int]) -> list[int]:
    """The longest end of `tail` that stands in the text."""
    for start in range(len(tail)):
        if places(text, tail[start:]):
            return list(tail[start:])
    return []


def shorter(text: Sequence[int], context: Sequence[int]) -> list[int]:
    """The longest end of a context that stands at more places than it."""
    here = places(text, context)
    for start in range(1, len(context)):
        if places(text, context[start:]) != here:
            return list(context[start:])
    return []


def places(text: Sequence[int], context: Sequence[int]) -> list[int]:
    """Where a context ends in a text."""
    n = len(context)
    return [end for end in range(n, len(text) + 1) if list(text[end - n : end]) == list(context)]
