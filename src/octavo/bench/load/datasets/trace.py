"""Traces of real services: when requests came and how long they were; what they said is not told, so we make it up.

Azure's CSV (Patel et al., Splitwise, ISCA 2024): TIMESTAMP, ContextTokens, GeneratedTokens.
Mooncake's JSONL (Qin et al., FAST 2025): timestamp in milliseconds, input_length, output_length, hash_ids: one per
block of 512 prompt tokens, equal where the blocks and all before them are. Equal ids get equal words, so a prefix cache
finds what the service's could have found.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from random import Random

from octavo.bench.load.datasets.lines import fault, json_lines, read_text, whole
from octavo.bench.load.datasets.words import Words
from octavo.bench.load.dialogue import Dialogue, Turn
from octavo.bench.load.settings import DatasetSettings
from octavo.errors import ConfigError

BLOCK_TOKENS = 512
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_BLOCKS_KEPT = 256


@dataclass(frozen=True)
class TraceRow:
    """One request of a trace."""

    at_s: float
    input_len: int
    output_len: int
    hash_ids: tuple[int, ...] = ()


def trace_dialogues(settings: DatasetSettings, words: Words, spare: int) -> list[Dialogue]:
    """The first rows of a trace that are not too long, as many as asked for, with prompts of their lengths."""
    most = settings.max_input_len or float("inf")
    rows = [row for row in read_trace(str(settings.dataset_path)) if row.input_len <= most]
    wanted = len(rows) if settings.num_prompts is None else settings.num_prompts + spare
    make_prompt = _prompts(settings, words)
    return [
        Dialogue((Turn(make_prompt(number, row), settings.answer_len(row.output_len), row.input_len),), at_s=row.at_s)
        for number, row in enumerate(rows[:wanted])
    ]


def read_trace(path: str) -> list[TraceRow]:
    """Rows in the order of the file; which form it has shows its first character.

    Raises:
        ConfigError: it is neither form; names the line.
    """
    text = read_text(path)
    rows = _mooncake(path, text) if text.lstrip()[:1] == "{" else _azure(path, text)
    if not rows:
        raise ConfigError("dataset_path", path, "holds no requests")
    return rows


def _azure(path: str, text: str) -> list[TraceRow]:
    reader = csv.DictReader(io.StringIO(text))
    if not set(_AZURE) <= set(reader.fieldnames or ()):
        problem = f"is no trace: neither the columns {', '.join(_AZURE)} nor JSON lines"
        raise ConfigError("dataset_path", path, problem)
    rows = []
    for row in reader:
        number = reader.line_num
        at_s = _seconds(path, number, row["TIMESTAMP"])
        lengths = [max(1, whole(path, number, row, name)) for name in _AZURE[1:]]
        rows.append(TraceRow(at_s, lengths[0], lengths[1]))
    return rows


def _seconds(path: str, number: int, written: str) -> float:
    """Of `2023-11-16 18:17:03.9799600`, with or without a zone at its end. Seven digits are a tenth of a microsecond,
    one digit more than Python reads."""
    date, _, clock = written.partition(" ")
    try:
        day = datetime.fromisoformat(f"{date} 00:00:00+00:00").timestamp()
        hours, minutes, seconds = clock.partition("+")[0].split(":")
        return day + int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    except ValueError:
        raise fault(path, number, f"TIMESTAMP {written!r} is not like 2023-11-16 18:17:03.9799600") from None


def _mooncake(path: str, text: str) -> list[TraceRow]:
    rows = []
    for number, row in json_lines(path, text):
        at_ms = row.get("timestamp")
        if not isinstance(at_ms, int | float):
            raise fault(path, number, f"timestamp is {at_ms!r}; it must be milliseconds")
        hash_ids = row.get("hash_ids", [])
        if not isinstance(hash_ids, list) or not all(isinstance(block, int) for block in hash_ids):
            raise fault(path, number, "hash_ids must be a list of whole numbers")
        lengths = whole(path, number, row, "input_length", 1), whole(path, number, row, "output_length")
        rows.append(TraceRow(at_ms / 1000, lengths[0], max(1, lengths[1]), tuple(hash_ids)))
    return rows


def _prompts(settings: DatasetSettings, words: Words) -> Callable[[int, TraceRow], str]:
    @lru_cache(maxsize=_BLOCKS_KEPT)
    def block(block_id: int) -> Sequence[str]:
        return words.draw(Random(f"block {block_id} {settings.seed}"), BLOCK_TOKENS)

    def prompt(number: int, row: TraceRow) -> str:
        length = max(1, row.input_len - words.at_start())
        known = [word for block_id in row.hash_ids for word in block(block_id)][:length]
        rest = words.draw(Random(f"row {number} {settings.seed}"), length - len(known))
        return words.prompt([*known, *rest])

    return prompt
