"""Reference tokenisations and template renderings (tests/data/golden)."""

import functools
import json
from pathlib import Path
from typing import Any

from octavo.execution.loader.gguf import open_gguf
from octavo.text.tokenizer import Tokenizer, from_gguf
from tests.real_models import model_path

FOLDER = Path(__file__).parent.parent / "data" / "golden"
ALIASES = {"smollm2": "smollm2-135m", "gemma3": "gemma3-270m", "qwen2": "qwen2.5-coder-0.5b"}


def rows(name: str) -> list[dict[str, Any]]:
    """All rows of one file of references."""
    with (FOLDER / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def metadata(model: str) -> dict[str, Any]:
    """The key/values of a real model's file; skips the test where it is not in the cache."""
    return _metadata(model_path(ALIASES[model]))


def tokenizer(model: str) -> Tokenizer:
    """A real model's tokenizer; skips the test where the model is not in the cache."""
    return _tokenizer(model_path(ALIASES[model]))


@functools.cache
def _metadata(path: Path) -> dict[str, Any]:
    return dict(open_gguf([path]).metadata)


@functools.cache
def _tokenizer(path: Path) -> Tokenizer:
    return from_gguf(_metadata(path))
