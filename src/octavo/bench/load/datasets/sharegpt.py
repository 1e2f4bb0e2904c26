"""Files of ShareGPT's form: a JSON list of `{"conversations": [{"from": "human" | "gpt", "value": TEXT}, ...]}`."""

import json
from itertools import pairwise
from random import Random
from typing import Any

from octavo.bench.load.datasets.lines import read_text
from octavo.bench.load.datasets.words import Words
from octavo.bench.load.dialogue import Dialogue, Turn
from octavo.bench.load.settings import DatasetSettings
from octavo.errors import ConfigError

ASKS = ("human", "user")
ANSWERS = ("gpt", "assistant", "chatgpt", "bing", "bard")


def sharegpt_dialogues(settings: DatasetSettings, words: Words, spare: int) -> list[Dialogue]:
    """Conversations in an order drawn by the seed: of each the first question, or with the data set `multi-turn` its
    first `turns` questions. An answer is asked for as long as the recorded one, where a tokenizer can count it."""
    turns = settings.turns if settings.dataset == "multi-turn" else 1
    wanted = None if settings.num_prompts is None else settings.num_prompts + spare
    pairs = [found[:turns] for found in _read(str(settings.dataset_path)) if len(found) >= turns]
    Random(f"sharegpt {settings.seed}").shuffle(pairs)
    return [
        Dialogue(tuple(_turn(settings, words, *pair) for pair in found), think_s=settings.think_s)
        for found in pairs[:wanted]
    ]


def _turn(settings: DatasetSettings, words: Words, question: str, answer: str) -> Turn:
    length = words.count(question)
    return Turn(question, settings.answer_len(words.count(answer)), length and length + words.at_start())


def _read(path: str) -> list[list[tuple[str, str]]]:
    """Of each conversation the questions with their answers.

    Raises:
        ConfigError: the file has another form.
    """
    try:
        rows = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise ConfigError("dataset_path", path, f"is no JSON: {error}") from None
    if not isinstance(rows, list):
        raise ConfigError("dataset_path", path, "must be a JSON list of conversations")
    return [_pairs(path, number, row) for number, row in enumerate(rows, 1)]


def _pairs(path: str, number: int, row: Any) -> list[tuple[str, str]]:
    said = row.get("conversations", row.get("conversation")) if isinstance(row, dict) else None
    if not isinstance(said, list):
        raise ConfigError("dataset_path", path, f"entry {number} has no list of conversations")
    spoken = [(str(part.get("from")), part.get("value")) for part in said if isinstance(part, dict)]
    return [
        (question, answer)
        for (asks, question), (answers, answer) in pairwise(spoken)
        if asks in ASKS and answers in ANSWERS and isinstance(question, str) and isinstance(answer, str)
        if question.strip() and answer.strip()
    ]
