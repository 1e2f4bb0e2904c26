"""What every engine's program speaks: one JSON object a line, on stdin and stdout. Standard library only, since each
program runs in the environment of its own engine.

The first line is the setting, {"model": path, "threads": n, "max_seqs": n, "max_len": n, ...}; the answer, once the
engine can generate, is {"versions": {...}, "settings": {...}}. Every further line is an order,
{"prompts": [[ids], ...], "output_len": n}: all prompts are given at once, each yields exactly n greedy tokens, and the
answer is a `Run`. An engine that cannot answers {"error": text} and ends.
"""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

PR_SET_PDEATHSIG = 1
Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Run:
    """One order done."""

    elapsed_s: float
    """From giving the prompts to having all tokens."""
    first_s: float
    """From giving the prompts until the last of them has its first token."""
    tokens: list[list[int]]
    """Per prompt."""
    drafts: int = 0
    """Tokens that were tried before they were known."""
    right_drafts: int = 0
    """Of these, those that came."""


class Engine(Protocol):
    """What a program wraps its engine in."""

    versions: dict[str, str]
    settings: dict[str, Any]
    """What its figures depend on, as it runs."""

    def run(self, prompts: Prompts, output_len: int) -> Run:
        """Generates exactly `output_len` greedy tokens for each prompt."""


class Stopwatch:
    """Times a run token by token, for engines that are driven step by step."""

    def __init__(self, count: int) -> None:
        self._begin = time.perf_counter()
        self._first_s = 0.0
        self._tokens: list[list[int]] = [[] for _ in range(count)]
        self._waiting = count

    def add(self, index: int, tokens: Sequence[int]) -> None:
        """New tokens of a prompt."""
        if tokens and not self._tokens[index]:
            self._waiting -= 1
            if self._waiting == 0:
                self._first_s = time.perf_counter() - self._begin
        self._tokens[index] += tokens

    def stop(self) -> Run:
        """All tokens are there."""
        return Run(time.perf_counter() - self._begin, self._first_s, self._tokens)


def serve(open_engine: Callable[[dict[str, Any]], Engine]) -> None:
    """Runs the program: opens the engine, then answers orders until stdin ends.

    Whatever the engine itself prints goes to stderr. On Linux the program ends with the one that started it, even
    while it is stopped.
    """
    end_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(line: dict[str, Any]) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    try:
        engine = open_engine(json.loads(sys.stdin.readline()))
        answer({"versions": engine.versions, "settings": engine.settings})
        for line in sys.stdin:
            order = json.loads(line)
            answer(asdict(_checked(engine.run(order["prompts"], order["output_len"]), order)))
    except Exception as error:
        answer({"error": f"{type(error).__name__}: {error}"})
        raise


def end_with_parent() -> None:
    """This process ends with the one that started it, even while it is stopped; on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _checked(run: Run, order: dict[str, Any]) -> Run:
    counts = [len(tokens) for tokens in run.tokens]
    if counts != [order["output_len"]] * len(order["prompts"]):
        raise RuntimeError(f"{order['output_len']} tokens were ordered for each prompt, these came: {counts}")
    return run
