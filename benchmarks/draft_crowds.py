"""The four kinds of work of draft_workloads.py with thirty-two different questions each, for batches. All of our own.

    code edit    8 files x 4 names          extraction   8 texts x 4 tasks
    JSON         8 subjects x 4 schemas     free chat    32 questions

Question i of a kind is about text i mod 8, so that neighbours in a batch have different ones.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draft_workloads import PEOPLE

from octavo.request.params import SamplingParams
from octavo.request.structured import StructuredKind, StructuredSpec

TEXTS = Path(__file__).with_name("workloads")
CROWD = 32

RENAMES = {
    "ledger": ("balance_of -> owed_to", "person -> friend", "balances -> saldo", "transfers -> payments"),
    "matrix": ("multiply -> product_of", "result -> answer", "zeros -> empty_matrix", "matrix -> table"),
    "weather": ("Reading -> Measurement", "celsius -> degrees", "station -> site", "rain_mm -> rain_in_mm"),
    "queue": ("running -> active", "startNext -> launchWaiting", "waiting -> pending", "finish -> complete"),
    "grid": ("Grid -> Board", "cells_ -> values_", "check -> require_inside", "height_ -> rows_"),
    "orders": ("customers -> clients", "total_cents -> amount_cents", "city -> town", "full_name -> display_name"),
    "tokens": ("Token -> Symbol", "tokenize -> scan", "position -> offset", "source -> expression"),
    "cache": ("Cache -> Store", "Entry -> Item", "mutex -> lock", "entries -> items"),
}
"""File -> what is renamed to what."""

TASKS = (
    "Copy all sentences that hold a number, word for word, as a list.",
    "Copy the first four sentences word for word, each on a line of its own.",
    "List every name, date and number of this text, each together with the sentence in which it stands.",
    "Copy the last three sentences word for word, then the first sentence.",
)

SUBJECTS = (
    "a small Norwegian town around 1900",
    "an orchestra on tour",
    "a research station in the ice",
    "a village fair",
    "a railway station at night",
    "a bakery in the morning",
    "a school on an island",
    "a shipyard",
)


def _listed(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a list of 4 to 6 objects under one name."""
    item = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    listed = {"type": "array", "minItems": 4, "maxItems": 6, "items": item}
    return {
        "type": "object",
        "properties": {name: listed},
        "required": [name],
        "additionalProperties": False,
    }


SCHEMAS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("five people", PEOPLE),
    (
        "five objects",
        _listed(
            "objects",
            {
                "name": {"type": "string", "maxLength": 24},
                "material": {"enum": ["wood", "iron", "glass", "paper"]},
                "weight_in_grams": {"type": "integer", "minimum": 1, "maximum": 5000},
                "belongs_to": {"type": "string", "maxLength": 24},
            },
        ),
    ),
    (
        "five events of one day",
        _listed(
            "events",
            {
                "starts_at": {"type": "string", "pattern": "[0-2][0-9]:[0-5][0-9]"},
                "title": {"type": "string", "maxLength": 40},
                "number_of_visitors": {"type": "integer", "minimum": 0, "maximum": 500},
                "is_open_to_all": {"type": "boolean"},
            },
        ),
    ),
    (
        "five rooms or places",
        _listed(
            "places",
            {
                "place_name": {"type": "string", "maxLength": 30},
                "description": {"type": "string", "maxLength": 60},
                "length_in_metres": {"type": "number", "minimum": 1, "maximum": 99},
                "is_heated": {"type": "boolean"},
            },
        ),
    ),
)

CHAT = (
    "What makes a good walk in the mountains?",
    "Tell me a short story about a clock that runs backwards.",
    "Why is the sky blue, and why are sunsets red?",
    "How do I begin to learn an instrument as a grown-up?",
    "Explain what a compiler does to somebody who has never written a program.",
    "What should I think about before I adopt a dog?",
    "Write a letter to a friend who has moved to another country.",
    "How does a bicycle stay upright?",
    "Give me some advice for my first job interview.",
    "What is the difference between weather and climate?",
    "Tell me about a day in the life of a lighthouse keeper.",
    "How can a small town get more people to ride the bus?",
    "Why do we dream?",
    "Describe the taste of bread to somebody who has never eaten any.",
    "What are good reasons to keep a diary?",
    "How do vaccines work?",
    "Plan a simple dinner for six people who do not know each other.",
    "What would you ask a person who has lived for a hundred years?",
    "Explain why the seasons change.",
    "How do I stop putting things off?",
    "Tell me a fable about a crow and a river.",
    "What makes a map useful?",
    "How is paper made?",
    "Why do some people like to be alone?",
    "Suggest a way to divide housework fairly in a shared flat.",
    "What happens to a letter after I have posted it?",
    "How do birds find their way?",
    "Write a short speech for the opening of a library.",
    "What is money, really?",
    "How should I prepare for a week without electricity?",
    "Why do old houses creak at night?",
    "What can a city do against heat in summer?",
)


@dataclass(frozen=True)
class Question:
    """One request."""

    text: str
    schema: Mapping[str, Any] | None = None
    """Of the answer; None: any text."""

    def params(self, max_tokens: int, seed: int | None) -> SamplingParams:
        """Greedy without a seed, else drawn at temperature 0.8."""
        spec = None
        if self.schema is not None:
            source = json.dumps(self.schema)
            spec = StructuredSpec(kind=StructuredKind.JSON_SCHEMA, source=source, compact=True)
        temperature = 0.0 if seed is None else 0.8
        return SamplingParams(temperature=temperature, seed=seed, max_tokens=max_tokens, structured_outputs=spec)


def _code_edits() -> list[Question]:
    def question(name: str, number: int) -> Question:
        old, new = RENAMES[name][number].split(" -> ")
        code = (TEXTS / "code" / f"{name}.txt").read_text()
        return Question(f"Rename `{old}` to `{new}` everywhere. Answer with the whole file only.\n\n{code}")

    return [question(name, number) for number in range(4) for name in RENAMES]


def _extractions() -> list[Question]:
    texts = [path.read_text() for path in sorted((TEXTS / "texts").glob("*.txt"))]
    return [Question(f"{text}\n{task}") for task in TASKS for text in texts]


def _json_answers() -> list[Question]:
    return [
        Question(f"Describe {what} of {subject} as JSON.", schema) for what, schema in SCHEMAS for subject in SUBJECTS
    ]


CROWDS: dict[str, Sequence[Question]] = {
    "code edit": _code_edits(),
    "extraction": _extractions(),
    "JSON by schema": _json_answers(),
    "free chat": [Question(text) for text in CHAT],
}
"""Kind of work -> its questions, `CROWD` of them."""
