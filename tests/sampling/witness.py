"""A sampler that works every row out again by the oracle, on whatever path the row comes."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from octavo.config import EngineConfig
from octavo.engine.build import build_core
from octavo.engine.llm import LLM
from octavo.engine.words import load_words
from octavo.execution.protocols import Float32, Int32, ProgramExecutor, SampledRows, Sampler, TokenMasks
from octavo.hub import resolve
from octavo.request.outputs import LogprobRow
from octavo.request.params import SamplingParams
from tests.sampling import oracle


@dataclass
class Watched:
    """One request as the witness knows it."""

    params: SamplingParams
    eos: Sequence[int]
    prompt: list[int]
    outputs: list[int]
    resumed: bool


@dataclass
class Witness:
    """Passes everything on; keeps what the oracle sees otherwise."""

    sampler: Sampler
    valid_vocab_size: int
    processors: Mapping[str, oracle.Edit] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    """How many rows were seen: `first`, `later`, `resumed`, `forced`, `named`, `unsure`."""
    fails_after_sampling: bool = False
    """Every third call for several rows raises behind its work, so that the runner undoes that and tries parts."""
    _num_calls: int = 0
    _by_slot: dict[int, Watched] = field(default_factory=dict)

    def add(
        self, slot: int, params: SamplingParams, eos: Sequence[int], prompt: Sequence[int], outputs: Sequence[int]
    ) -> None:
        self.sampler.add(slot, params, eos, prompt, outputs)
        self._by_slot[slot] = Watched(params, eos, list(prompt), list(outputs), bool(outputs))

    def remove(self, slot: int) -> None:
        self.sampler.remove(slot)
        del self._by_slot[slot]

    def prepare(self, slots: Int32) -> None:
        self.sampler.prepare(slots)

    def sample(self, logits: Float32, slots: Int32, masks: TokenMasks | None = None) -> SampledRows:
        raw = np.array(logits)
        sampled = self.sampler.sample(logits, slots, masks)
        assert np.array_equal(raw, logits), "the sampler wrote into the logits"
        self._num_calls += 1
        if self.fails_after_sampling and len(slots) > 1 and self._num_calls % 3 == 0:
            self.rows["undone"] += len(slots)
            raise MemoryError("on purpose")
        for row, slot in enumerate(slots.tolist()):
            token = int(sampled.token_ids[row])
            if token >= 0:
                seen = self._by_slot[slot]
                mask = None if masks is None or masks.rows[row] < 0 else masks.words[masks.rows[row]]
                self._check_token(seen, raw[row], token, mask)
                self._check_logprobs(seen, raw[row], token, sampled.logprobs[row] if sampled.logprobs else None)
                seen.outputs.append(token)
        return sampled

    def score(self, logits: Float32, targets: Int32, num_logprobs: int) -> list[LogprobRow]:
        rows = self.sampler.score(logits, targets, num_logprobs)
        for raw, token, row in zip(logits, targets.tolist(), rows, strict=True):
            self._check_row(raw, SamplingParams(logprobs=num_logprobs), token, row)
        return rows

    def _check_token(self, seen: Watched, raw: Float32, token: int, mask: Int32 | None) -> None:
        p, row = seen.params, raw[: self.valid_vocab_size]
        self.rows["resumed" if seen.resumed else "later" if seen.outputs else "first"] += 1
        must = oracle.forced(p.reasoning, seen.outputs)
        if must is not None:
            self.rows["forced"] += 1
            self._compare(seen, token, must)
            return
        for name, edit in self.processors.items():
            if name in (p.logits_processors or {}):
                row = edit(p.logits_processors[name], seen.prompt, seen.outputs, row)  # type: ignore[index]
        if mask is not None:
            self.rows["masked"] += 1
            row = np.where(oracle.bits(mask, len(row)), row, -np.inf)
        x = oracle.adjusted(row, p, seen.eos, seen.prompt, seen.outputs)
        want, sure = oracle.draw(x, p, len(seen.outputs))
        self.rows["unsure"] += not sure
        if sure:
            self._compare(seen, token, want)

    def _compare(self, seen: Watched, token: int, want: int) -> None:
        if token != want:
            self.faults.append(f"token {token}, not {want}, behind {seen.outputs} for {seen.params}")

    def _check_logprobs(self, seen: Watched, raw: Float32, token: int, row: LogprobRow | None) -> None:
        if (row is None) != (seen.params.logprobs is None):
            self.faults.append(f"logprobs {row} for {seen.params}")
        elif row is not None:
            self.rows["named"] += bool(seen.params.logprob_token_ids)
            self._check_row(raw, seen.params, token, row)

    def _check_row(self, raw: Float32, params: SamplingParams, token: int, row: LogprobRow) -> None:
        """Ids exactly, values to float32; over the whole row, padding included."""
        valid, values = raw[: self.valid_vocab_size], oracle.logprobs(raw)
        good = row.token_ids == oracle.listed(valid, params, token)
        good = good and row.rank == 1 + int((valid > raw[token]).sum())
        good = good and np.allclose(row.logprobs, values[row.token_ids], atol=1e-4, rtol=1e-5)
        if not good:
            self.faults.append(f"logprobs {row} behind token {token} for {params}")


def witnessed(
    model: str,
    fields: Mapping[str, object],
    processors: Mapping[str, oracle.Edit] | None = None,
    *,
    fails_after_sampling: bool = False,
) -> tuple[LLM, Witness]:
    """An `LLM` whose sampler is watched."""
    config = EngineConfig.from_fields({"model": model, **fields})
    files = resolve(model)
    words = load_words(config, files)
    witnesses: list[Witness] = []

    def watch(executor: ProgramExecutor, sampler: Sampler) -> tuple[ProgramExecutor, Sampler]:
        size = words.tokenizer.vocab_size if words.tokenizer else 0
        witnesses.append(Witness(sampler, size, processors or {}, fails_after_sampling=fails_after_sampling))
        return executor, witnesses[0]

    core, info = build_core(config, files, time.monotonic, watch)
    return LLM.over(core, words, info), witnesses[0]
