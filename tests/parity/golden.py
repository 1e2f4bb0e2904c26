"""The reference outputs of tests/data/golden as arrays."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.execution.protocols import Int32

FOLDER = Path(__file__).parent.parent / "data" / "golden"
ALIASES = {"smollm2": "smollm2-135m", "gemma3": "gemma3-270m", "qwen2": "qwen2.5-coder-0.5b"}
NOISY = "empty_bos_only"
"""A row whose prompt is a lone BOS: out of every pool that bounds 8-bit noise."""

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GreedyRow:
    """llama.cpp's greedy continuation of one prompt, with both references' logprobs of its ten best tokens per step."""

    name: str
    prompt_ids: list[int]
    ids: list[int]
    """[steps]"""
    top_ids: Int32
    """[steps, 10]"""
    llama: Float64
    """[steps, 10] logprobs of top_ids."""
    f32: Float64
    """[steps, 10] logprobs of top_ids."""
    f32_argmax: Int32
    """[steps]"""
    margin_f32: Float64
    """[steps] top-1 less top-2."""
    ambiguous: npt.NDArray[np.bool_]
    """[steps]"""


@dataclass(frozen=True)
class Text:
    """A text with the float32 reference's logprob of every id but the first."""

    kind: str
    ids: list[int]
    f32: Float64
    """[ids - 1]"""

    def first(self, count: int) -> "Text":
        """The text's first `count` ids; later ones do not change their logprobs."""
        return Text(self.kind, self.ids[:count], self.f32[: count - 1])


def greedy_rows(model: str, kind: str) -> list[GreedyRow]:
    """Rows of `greedy_MODEL` or `long_MODEL`."""
    return [_greedy(row) for row in _lines(f"{kind}_{model}")]


def texts(model: str) -> dict[str, Text]:
    """The scored texts of a model, by kind."""
    rows = (row for row in _lines("perplexity") if row["model"] == model)
    return {row["kind"]: Text(row["kind"], row["ids"], np.array(row["f32"]["token_logprobs"])) for row in rows}


def _lines(name: str) -> Iterator[dict[str, Any]]:
    with (FOLDER / f"{name}.jsonl").open(encoding="ascii") as lines:
        yield from map(json.loads, lines)


def _greedy(row: dict[str, Any]) -> GreedyRow:
    top = np.array(row["llama"]["top"])
    return GreedyRow(
        name=row["name"],
        prompt_ids=row["prompt_ids"],
        ids=row["llama"]["ids"],
        top_ids=top[..., 0].astype(np.int32),
        llama=top[..., 1],
        f32=np.array(row["f32"]["lp_at_llama_top"]),
        f32_argmax=np.array(row["f32"]["argmax"], np.int32),
        margin_f32=np.array(row["steps"]["margin_f32"]),
        ambiguous=np.array(row["steps"]["ambiguous"], bool),
    )
