"""The data sets of `bench serve` for the engine in this process: token ids instead of requests over HTTP."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from octavo.bench.load.datasets import make_workload
from octavo.bench.load.datasets.words import TokenWords
from octavo.bench.load.dialogue import Dialogue, Turn
from octavo.bench.load.settings import DEFAULT_COUNT, DatasetSettings
from octavo.engine.grammars import load_tokenizer
from octavo.engine.llm import LLM
from octavo.hub import resolve


@dataclass(frozen=True)
class Step:
    """One request of a talk."""

    token_ids: list[int]
    """What is new in its prompt: the talk's earlier prompts and answers come before it."""
    output_len: int


Talk = tuple[Step, ...]
"""Requests of which each has to wait for the answer to the one before it; mostly a single one."""


def make_talks(settings: DatasetSettings, llm: LLM, model: str) -> list[Talk]:
    """The requests of a data set as an engine takes them. Times that it has are left out: nothing is waited for.

    Args:
        model: of the engine; its tokenizer counts and encodes.

    Raises:
        OctavoError: the file is unfit, or the tokenizer.
    """
    if settings.dataset == "random":
        return random_talks(settings, llm.info.vocab_size)
    tokenizer = load_tokenizer(resolve(model))
    dialogues = make_workload(settings, TokenWords(tokenizer, special=True), 0).measured
    return [_talk(dialogue, tokenizer.encode, llm) for dialogue in dialogues]


def random_talks(settings: DatasetSettings, vocab_size: int) -> list[Talk]:
    """Single requests of random token ids, which no tokenizer is needed for."""
    lengths, ids = Random(f"lengths {settings.seed}"), Random(settings.seed)

    def step() -> Step:
        length, output_len = (settings.draw_len(lengths, of) for of in (settings.input_len, settings.answer_len()))
        return Step(_random_ids(ids, length, vocab_size), output_len)

    return [(step(),) for _ in range(settings.num_prompts or DEFAULT_COUNT)]


def random_prompts(count: int, length: int, vocab_size: int, seed: int) -> list[list[int]]:
    """Token ids drawn evenly from the vocabulary: no two prompts share a prefix worth caching. Equal arguments give
    equal prompts on every machine."""
    ids = Random(seed)
    return [_random_ids(ids, length, vocab_size) for _ in range(count)]


def _random_ids(draw: Random, length: int, vocab_size: int) -> list[int]:
    return [draw.randrange(vocab_size) for _ in range(length)]


def _talk(dialogue: Dialogue, encode: Callable[..., list[int]], llm: LLM) -> Talk:
    steps = [_step(turn, encode, llm, is_first=number == 0) for number, turn in enumerate(dialogue.turns)]
    return tuple(steps)


def _step(turn: Turn, encode: Callable[..., list[int]], llm: LLM, is_first: bool) -> Step:
    assert turn.output_len is not None, "data sets for an engine know how much to generate"
    if isinstance(turn.prompt, str):
        ids = encode(turn.prompt if is_first else f" {turn.prompt}", add_special=is_first)
    elif isinstance(turn.prompt[0], int):
        ids = list(turn.prompt)
    else:
        ids = llm.render_chat(list(turn.prompt))
    return Step(ids, turn.output_len)
