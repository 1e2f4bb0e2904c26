"""Scores golden rows with an executor, and compares."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from octavo.execution.loader import open_checkpoint
from octavo.execution.protocols import Float32, Int32, ProgramExecutor
from octavo.execution.weights import LoadedWeight, load_model
from octavo.kv.spec import KVDtype, KVLayout
from octavo.model.program import Program
from tests.execution.driver import Driver, layout_for
from tests.parity.golden import ALIASES, Float64, GreedyRow, Text
from tests.real_models import model_path

CHUNK = 512
MAX_ROWS = 64
"""Logit rows in memory at a time: at most 64 x 262144 floats."""

Build = Callable[[Program, dict[str, LoadedWeight], KVLayout], ProgramExecutor]


def open_model(model: str, build: Build, *, tokens: int, dtype: KVDtype) -> Driver:
    """An executor over a real model, for sequences of up to so many tokens; skips where the model is not cached."""
    program, weights = load_model(open_checkpoint([model_path(ALIASES[model])]))
    return Driver(build(program, weights, layout_for(program, tokens=tokens, dtype=dtype)))


@dataclass(frozen=True)
class Scored:
    """What an executor says of the steps of one or more rows, teacher-forced on the row's ids."""

    rows: list[GreedyRow]
    logprobs: Float64
    """[steps, 10] of the rows' top ids."""
    argmax: Int32
    """[steps]"""

    def differences(self, reference: str) -> Float64:
        """|logprob - reference's logprob|, `[steps, 10]`; reference: `f32` or `llama`."""
        return np.abs(self.logprobs - np.concatenate([vars(row)[reference] for row in self.rows]))

    def wrong_argmax(self, expected: Sequence[Int32 | list[int]], counted: Sequence[np.ndarray]) -> Int32:
        """Steps, among those counted, whose argmax is not the expected one."""
        return np.flatnonzero(np.concatenate(counted) & (self.argmax != np.concatenate(expected)))


def teacher_force(driver: Driver, rows: Iterable[GreedyRow]) -> Scored:
    """Scores each row in one pass over its prompt and all its ids but the last."""
    rows = list(rows)
    logprobs: list[Float64] = []
    argmax: list[Int32] = []
    for row in rows:
        first = len(row.prompt_ids) - 1
        for positions, logits in driver.score(row.prompt_ids + row.ids[:-1], first, chunk=CHUNK):
            logprobs.append(_log_softmax(logits, row.top_ids[positions - first]))
            argmax.append(logits.argmax(axis=1).astype(np.int32))
    return Scored(rows, np.concatenate(logprobs), np.concatenate(argmax))


def token_logprobs(driver: Driver, text: Text) -> Float64:
    """Logprob of every id of a text but the first, in one pass."""
    ids = np.array(text.ids, np.int32)
    pieces = driver.score(text.ids[:-1], 0, chunk=CHUNK)
    return np.concatenate([_log_softmax(logits, ids[positions + 1, None])[:, 0] for positions, logits in pieces])


def _log_softmax(logits: Float32, ids: Int32) -> Float64:
    """Logprobs `[rows, n]` of ids `[rows, n]`, summed in double precision."""
    top = logits.max(axis=1, keepdims=True)
    norm = np.log(np.exp(logits - top).sum(axis=1, keepdims=True, dtype=np.float64))
    return np.take_along_axis(logits, ids, axis=1).astype(np.float64) - top - norm
