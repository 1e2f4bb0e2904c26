"""Measuring several engines by turns: orders, batches, rounds, fresh starts."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from engine_process import (
    EngineFailedError,
    EngineProcess,
    EngineSpec,
    anonymous_bytes,
    busy_process,
    cpu_seconds,
    machine_cpu_seconds,
    peak_memory_bytes,
)
from pairing import rotated

from octavo.bench.datasets import random_prompts

BUSY_LIMIT_S = 120.0
RATES = ("end_to_end", "prefill", "decode")


@dataclass(frozen=True)
class Order:
    """One thing to run: batches of `concurrency` prompts, all given at once."""

    name: str
    concurrency: int
    input_len: int
    output_len: int
    seconds: float = 0.0
    """Batches follow each other until this time has passed; one at least."""
    beside_busy: bool = False


WARM_UP = (Order("", 1, 512, 2), Order("", 32, 16, 3))
START = Order("", 1, 16, 1)
CROWD = Order("", 32, 128, 128)


@dataclass(frozen=True)
class Measuring:
    """What measurements share."""

    vocab_size: int
    seed: int
    log_folder: Path
    timeout_s: float

    def open(self, spec: EngineSpec) -> EngineProcess:
        """Starts an engine."""
        return EngineProcess(spec, self.log_folder / f"{spec.name}.log", self.timeout_s)

    def prompts(self, order: Order, salt: int) -> list[list[int]]:
        """The prompts of one batch; equal salts give equal ones."""
        return random_prompts(order.concurrency, order.input_len, self.vocab_size, self.seed * 1_000_003 + salt)

    def batch(self, engine: EngineProcess, order: Order, salt: int) -> dict[str, Any]:
        """One batch: rates in tokens/s, the first token of each prompt, and processor time that others took meanwhile.

        `decode` and `prefill` split a run at the moment when the last request has its first token.
        """
        others = cpu_seconds(engine.session) - machine_cpu_seconds()
        run = engine.ask({"prompts": self.prompts(order, salt), "output_len": order.output_len})
        others += machine_cpu_seconds() - cpu_seconds(engine.session)
        elapsed_s, first_s, requests = run["elapsed_s"], run["first_s"], order.concurrency
        rates = {"end_to_end": requests * order.output_len / elapsed_s, "prefill": requests * order.input_len / first_s}
        if order.output_len > 1:
            rates["decode"] = requests * (order.output_len - 1) / (elapsed_s - first_s)
        first_tokens = [tokens[0] for tokens in run["tokens"]]
        return rates | {"elapsed_s": elapsed_s, "others_cpu_s": max(0.0, others), "first_tokens": first_tokens}

    def batches(self, engine: EngineProcess, order: Order, salt: int) -> list[dict[str, Any]]:
        """All batches of an order."""
        done: list[dict[str, Any]] = []
        while not done or sum(batch["elapsed_s"] for batch in done) < order.seconds:
            done.append(self.batch(engine, order, salt + len(done)))
        return done

    def measure(self, engine: EngineProcess, order: Order, salt: int) -> list[dict[str, Any]]:
        """The same on a stopped engine, beside a busy process if the order says so."""
        engine.resume()
        try:
            if not order.beside_busy:
                return self.batches(engine, order, salt)
            with busy_process(sys.executable, BUSY_LIMIT_S):
                return self.batches(engine, order, salt)
        finally:
            engine.pause()

    def start(self, spec: EngineSpec) -> dict[str, float]:
        """A fresh process: seconds from its start to its first token; then the peak memory of a crowd."""
        begin = time.perf_counter()
        engine = self.open(spec)
        try:
            self.batch(engine, START, salt=0)
            first_token_s = time.perf_counter() - begin
            self.batch(engine, CROWD, salt=0)
            pids = engine.pids()
            memory = {"peak_memory_bytes": peak_memory_bytes(pids), "anonymous_bytes": anonymous_bytes(pids)}
            return {"start_to_first_token_s": first_token_s, **memory, "processes": len(pids)}
        finally:
            engine.close()


class Comparison:
    """Engines, warm and stopped, that get the same orders by turns."""

    def __init__(self, measuring: Measuring) -> None:
        self._measuring = measuring
        self._engines: dict[str, EngineProcess] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        """Engine -> versions and settings, or its error."""

    def open(self, specs: Sequence[EngineSpec]) -> None:
        """Starts and warms engines."""
        for spec in specs:
            self.facts[spec.name] = or_error(partial(self._open, spec))

    def _open(self, spec: EngineSpec) -> dict[str, Any]:
        engine = self._measuring.open(spec)
        self._engines[spec.name] = engine
        try:
            for order in WARM_UP:
                self._measuring.batch(engine, order, salt=0)
        except EngineFailedError:
            self._drop(spec.name)
            raise
        engine.pause()
        progress(f"{spec.name} is warm")
        return engine.facts

    def run(self, order: Order, number: int, turn: int, cell: dict[str, Any]) -> None:
        """One order of round `number` on each engine, beginning with the `turn`-th, into `cell`, so that what was
        measured stays if the rest is cut short. An engine that fails is out."""
        for name in rotated(list(self._engines), turn):
            try:
                cell[name] = self._measuring.measure(self._engines[name], order, salt=1 + number * 100)
                progress(f"round {number + 1}, {order.name}: {name} {summary(cell[name])}")
            except EngineFailedError as error:
                self.facts[name] = self.facts[name] | {"error": f"{order.name}: {error}"}
                self._drop(name)

    def close(self) -> None:
        """Ends all engines."""
        for name in list(self._engines):
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._engines.pop(name).close()


def or_error(measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was measured, or why it could not be."""
    try:
        return measured()
    except EngineFailedError as error:
        return {"error": str(error)}


def summary(batches: Sequence[dict[str, Any]]) -> str:
    """A line for whoever waits."""
    rates = (f"{rate} {median(batch[rate] for batch in batches):.1f}" for rate in RATES if rate in batches[0])
    return f"{', '.join(rates)} tokens/s ({sum(batch['elapsed_s'] for batch in batches):.1f} s)"


def progress(line: str) -> None:
    """What is done, on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)
