"""Prompts to measure with."""

import random

from octavo.errors import ConfigError


def random_prompts(count: int, length: int, vocab_size: int, seed: int) -> list[list[int]]:
    """Token ids drawn evenly from the vocabulary: no two prompts share a prefix worth caching. Equal arguments give
    equal prompts on every machine."""
    draw = random.Random(seed)
    return [[draw.randrange(vocab_size) for _ in range(length)] for _ in range(count)]


DATASETS = {"random": random_prompts}


def make_prompts(dataset: str, count: int, length: int, vocab_size: int, seed: int) -> list[list[int]]:
    """Prompts of a data set by name.

    Raises:
        ConfigError: there is no such data set.
    """
    if dataset not in DATASETS:
        raise ConfigError("dataset", dataset, f"known data sets: {', '.join(DATASETS)}")
    return DATASETS[dataset](count, length, vocab_size, seed)
