"""JSON lines of one's own: `prompt` (a text, or token ids) or `messages`, and if wanted `output_len`, `at_s`, `slo`."""

from collections.abc import Mapping
from typing import Any

from octavo.bench.load.datasets.lines import fault, json_lines, read_text, whole
from octavo.bench.load.datasets.words import Words
from octavo.bench.load.dialogue import Dialogue, Prompt, Turn
from octavo.bench.load.settings import DatasetSettings
from octavo.errors import ConfigError

FIELDS = ("prompt", "messages", "output_len", "at_s", "slo")


def custom_dialogues(settings: DatasetSettings, words: Words, spare: int) -> list[Dialogue]:
    """The first lines, as many as asked for."""
    path = str(settings.dataset_path)
    rows = list(json_lines(path, read_text(path)))
    wanted = None if settings.num_prompts is None else settings.num_prompts + spare
    dialogues = [_dialogue(settings, words, path, number, row) for number, row in rows[:wanted]]
    if not dialogues:
        raise ConfigError("dataset_path", path, "holds no requests")
    if len({dialogue.at_s is None for dialogue in dialogues}) > 1:
        raise ConfigError("dataset_path", path, "some lines have at_s and some have not")
    return dialogues


def _dialogue(settings: DatasetSettings, words: Words, path: str, number: int, row: Mapping[str, Any]) -> Dialogue:
    unknown = sorted(set(row) - set(FIELDS))
    if unknown:
        raise fault(path, number, f"unknown field {unknown[0]!r}; known: {', '.join(FIELDS)}")
    known = whole(path, number, row, "output_len", 1) if "output_len" in row else None
    at_s, slo = row.get("at_s"), row.get("slo")
    if not isinstance(at_s, int | float | None) or not isinstance(slo, str | None):
        raise fault(path, number, "at_s must be seconds and slo a name")
    prompt = _prompt(path, number, row)
    return Dialogue((Turn(prompt, settings.answer_len(known), _length(words, prompt)),), at_s=at_s, slo=slo)


def _length(words: Words, prompt: Prompt) -> int | None:
    """Tokens, where they can be counted: of messages only a template could tell."""
    if isinstance(prompt, str):
        counted = words.count(prompt)
        return counted and counted + words.at_start()
    return len(prompt) if isinstance(prompt[0], int) else None


def _prompt(path: str, number: int, row: Mapping[str, Any]) -> Prompt:
    match row.get("prompt"), row.get("messages"):
        case str(text), None if text:
            return text
        case list(ids), None if ids and all(isinstance(token, int) for token in ids):
            return tuple(ids)
        case None, list(messages) if messages and all(isinstance(message, dict) for message in messages):
            return tuple(messages)
    raise fault(path, number, "must have either prompt, a text or token ids, or messages, a list of objects")
