"""Engines that differ in nothing but speculation, and what a batch of answers cost one of them."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.config import EngineConfig
from octavo.engine.build import build_core
from octavo.engine.input import InputProcessor, RequestOptions
from octavo.engine.local import LocalEngine
from octavo.engine.output_processor import OutputCollector, RequestStream
from octavo.engine.words import load_words
from octavo.hub import resolve
from octavo.request.params import SamplingParams

PARTS = ("schedule_s", "prepare_s", "execute_s", "sample_s", "update_s")
KV_BLOCKS = 5120
"""Room for all prompts of all kinds, and for answers that are under way."""
COUNTERS = ("steps", "computed_tokens", "draft_tokens", "accepted_draft_tokens", "generation_tokens", "cached_tokens")


@dataclass(frozen=True)
class Answers:
    """Of one batch of prompts."""

    tokens: tuple[tuple[int, ...], ...]
    """Per prompt."""
    elapsed_s: float
    """From giving all prompts to having the last token."""
    request_steps: int
    """Steps in which a request ran, summed over requests."""
    counters: dict[str, float]
    """`COUNTERS` and `PARTS`, of this batch alone."""

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.tokens))


def setting_fields(setting: str) -> dict[str, Any]:
    """`off`, `auto`, `suffix`, `suffix:4`, ... as the engine's settings; a number at the end is that of drafts."""
    name, colon, count = setting.rpartition(":")
    if colon and count.isdigit():
        return {"speculation": name, "num_speculative_tokens": int(count)}
    return {"speculation": setting}


class SpecEngine:
    """One engine, as an `LLM` runs it, with a prefix cache that all tenants share.

    Every batch comes from a tenant of its own: it finds its prompts in the cache, and no answer of another batch among
    the texts that proposers look into, which are kept by tenant.
    """

    def __init__(
        self,
        model: str,
        setting: str,
        *,
        threads: int,
        max_num_seqs: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """
        Args:
            clock: of `Answers.elapsed_s`.
        """
        fields = {"model": model, "threads": threads, "max_num_seqs": max_num_seqs, "max_model_len": 2048}
        fields["num_kv_blocks"] = KV_BLOCKS
        config = EngineConfig.from_fields({**fields, **setting_fields(setting)})
        files = resolve(model)
        self.core, info = build_core(config, files, time.monotonic)
        self.words = load_words(config, files)
        self.info = self.words.complete(info)
        self._inputs = InputProcessor(self.info, self.words.tokenizer, default_seed=0)
        self._local = LocalEngine(self.core)
        self._clock = clock
        self._batches = itertools.count()

    def answer(self, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]) -> Answers:
        """Answers all prompts side by side."""
        number = next(self._batches)
        requests = [
            self._inputs.prepare(f"{number}.{place}", list(prompt), p, RequestOptions(tenant=f"batch {number}"))
            for place, (prompt, p) in enumerate(zip(prompts, params, strict=True))
        ]
        collectors = {request.request_id: OutputCollector(request, None) for request in requests}
        before, started = self._counters(), self._clock()
        streams = [RequestStream(request, self.words.tokenizer) for request in requests]
        for delta in self._local.run(streams, self._local.clock()):
            collectors[delta.request_id].add(delta, self._local.clock())
        elapsed_s, after = self._clock() - started, self._counters()
        choices = [collectors[request.request_id].output().outputs[0] for request in requests]
        for choice in choices:
            if choice.error is not None or choice.stats is None:
                raise SystemExit(f"{self.info.model}: a request failed: {choice.error}")
        return Answers(
            tokens=tuple(tuple(choice.token_ids) for choice in choices),
            elapsed_s=elapsed_s,
            request_steps=sum(choice.stats.num_steps for choice in choices if choice.stats is not None),
            counters={name: after[name] - before[name] for name in (*COUNTERS, *PARTS)},
        )

    def _counters(self) -> dict[str, float]:
        return self.core.load().counters

    def close(self) -> None:
        self._local.close()
