"""Data sets that are made, not read: equal settings give equal dialogues on every machine."""

from random import Random

from octavo.bench.load.datasets.words import Words
from octavo.bench.load.dialogue import Dialogue, Turn
from octavo.bench.load.settings import DEFAULT_COUNT, DatasetSettings


def random_dialogues(settings: DatasetSettings, words: Words, spare: int) -> list[Dialogue]:
    """Single requests that share no prefix worth caching.

    Args:
        spare: dialogues to make beside those that were asked for.
    """
    draw = _draw(settings)
    return [Dialogue((_turn(settings, words, draw, ()),)) for _ in range(_count(settings) + spare)]


def prefix_dialogues(settings: DatasetSettings, words: Words, spare: int) -> list[Dialogue]:
    """Single requests that begin with one of a few prefixes, by turns."""
    draw = _draw(settings)
    prefixes = [words.draw(draw, settings.prefix_len) for _ in range(settings.num_prefixes)]
    numbers = range(_count(settings) + spare)
    return [Dialogue((_turn(settings, words, draw, prefixes[n % len(prefixes)]),)) for n in numbers]


def multi_turn_dialogues(settings: DatasetSettings, words: Words, spare: int) -> list[Dialogue]:
    """Dialogues whose turns each bring `input_len` new tokens; what was said before them comes with them."""
    draw = _draw(settings)

    def dialogue() -> Dialogue:
        turns = tuple(_turn(settings, words, draw, (), first=number == 0) for number in range(settings.turns))
        return Dialogue(turns, think_s=settings.think_s)

    return [dialogue() for _ in range(_count(settings) + spare)]


def _turn(
    settings: DatasetSettings, words: Words, draw: Random, prefix: list[str] | tuple[()], first: bool = True
) -> Turn:
    """`input_len` of what the server counts is known for first turns only: later ones repeat the dialogue."""
    fresh = settings.draw_len(draw, settings.input_len)
    drawn = words.draw(draw, max(1, fresh - (words.at_start() if first else 0)))
    prompt = words.prompt([*prefix, *drawn])
    length = len(prefix) + len(drawn) + words.at_start()
    return Turn(prompt, settings.draw_len(draw, settings.answer_len()), length if first else None)


def _count(settings: DatasetSettings) -> int:
    return settings.num_prompts or DEFAULT_COUNT


def _draw(settings: DatasetSettings) -> Random:
    return Random(f"{settings.dataset} {settings.seed}")
