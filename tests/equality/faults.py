"""Faults at every stage of a step, put between the runner and what it drives, and victims that bring them about."""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from octavo import LLM
from octavo.config import EngineConfig
from octavo.engine.build import Instrument, build_core
from octavo.engine.words import Words, load_words
from octavo.execution.loader import open_checkpoint
from octavo.execution.protocols import Float32, Int32, ProgramExecutor, SampledRows, Sampler, StepBatch, TokenMasks
from octavo.hub import resolve
from octavo.kv.spec import KVLayout
from octavo.request.outputs import FinishReason, LogprobRow
from octavo.request.params import SamplingParams
from octavo.text.gguf import read_gguf
from octavo.text.tokenizer import Tokenizer
from tests.equality.settings import Fields, assert_settled, generate, prompt_of
from tests.equality.tiny_models import POISON
from tests.equality.transcript import Answer, Transcripts
from tests.equality.workload import Request, Workload, greedy

MARK = 456
"""A token that only victims have: the workloads' answers lack it, too."""
NAN_TOKEN = next(token for token, value in POISON.items() if np.isnan(value))


class SoundExecutor:
    """Passes everything on. Faults derive from it."""

    def __init__(self, inner: ProgramExecutor) -> None:
        self.inner = inner
        self.layout: KVLayout = inner.layout
        self.max_rows = inner.max_rows
        self.num_faults = 0

    def run(self, batch: StepBatch) -> Float32:
        return self.inner.run(batch)

    def logits(self, rows: Int32) -> Float32:
        return self.inner.logits(rows)

    def hidden(self, rows: Int32) -> Float32:
        return self.inner.hidden(rows)

    def output(self, role: str) -> Float32:
        return self.inner.output(role)

    def broken_rows(self) -> Int32:
        return self.inner.broken_rows()

    def close(self) -> None:
        self.inner.close()


class Refuses(SoundExecutor):
    """Raises before it has done anything."""

    def run(self, batch: StepBatch) -> Float32:
        if MARK in known_tokens(batch):
            self.num_faults += 1
            raise ValueError("an argument that the kernel does not take")
        return self.inner.run(batch)


class RunsOutOfMemory(SoundExecutor):
    """Raises after it has written K and V."""

    def run(self, batch: StepBatch) -> Float32:
        logits = self.inner.run(batch)
        if MARK in known_tokens(batch):
            self.num_faults += 1
            raise MemoryError("std::bad_alloc")
        return logits


class NanLogits(SoundExecutor):
    """The logits of victims are no numbers; what they wrote is sound."""

    def run(self, batch: StepBatch) -> Float32:
        logits = self.inner.run(batch).copy()
        for sequence in marked_sequences(batch):
            first, end = batch.seq_starts[sequence : sequence + 2]
            hit = (batch.logit_rows >= first) & (batch.logit_rows < end)
            logits[hit] = np.nan
            self.num_faults += int(hit.any())
        return logits


class NanFromTheStart(SoundExecutor):
    """The first row of a victim in the step becomes NaN, and with it all that it and others compute from there: also
    those who share what it fills in this very step. For models whose poison tokens give NaN."""

    def run(self, batch: StepBatch) -> Float32:
        token_ids = batch.token_ids.copy()
        for sequence in marked_sequences(batch):
            token_ids[batch.seq_starts[sequence]] = NAN_TOKEN
            self.num_faults += 1
        return self.inner.run(replace(batch, token_ids=token_ids))


def marked_sequences(batch: StepBatch) -> list[int]:
    """Sequences of a step in which a marked token runs."""
    rows = np.flatnonzero(known_tokens(batch) == MARK)
    return sorted({int(i) for i in np.searchsorted(batch.seq_starts, rows, side="right") - 1})


def known_tokens(batch: StepBatch) -> Int32:
    """[T] the tokens of a step, -1 for drafts: nobody has asked for these, so that they bring nothing about. A row with
    logits that follows another one in its sequence has a draft."""
    tokens, sequences = batch.token_ids.copy(), np.searchsorted(batch.seq_starts, batch.logit_rows, side="right")
    tokens[batch.logit_rows[1:][sequences[1:] == sequences[:-1]]] = -1
    return tokens


class SoundSampler:
    """Passes everything on. Faults derive from it."""

    def __init__(self, inner: Sampler) -> None:
        self.inner = inner
        self.victims: set[int] = set()
        """Slots."""
        self.num_faults = 0

    def add(
        self,
        slot: int,
        params: SamplingParams,
        eos_token_ids: Sequence[int],
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
    ) -> None:
        self.inner.add(slot, params, eos_token_ids, prompt_token_ids, output_token_ids)
        if MARK in prompt_token_ids:
            self.victims.add(slot)

    def remove(self, slot: int) -> None:
        self.victims.discard(slot)
        self.inner.remove(slot)

    def prepare(self, slots: Int32, drafts: Int32 | None = None) -> None:
        self.inner.prepare(slots, drafts)

    def sample(self, logits: Float32, slots: Int32, masks: TokenMasks | None = None) -> SampledRows:
        return self.draws(slots, lambda: self.inner.sample(logits, slots, masks))

    def num_worth_running(self, slot: int, drafts: Sequence[int]) -> int:
        return self.inner.num_worth_running(slot, drafts)

    def verify(self, logits: Float32, slots: Int32, drafts: Int32, masks: TokenMasks | None = None) -> SampledRows:
        return self.draws(slots, lambda: self.inner.verify(logits, slots, drafts, masks))

    def draws(self, slots: Int32, draw: Callable[[], SampledRows]) -> SampledRows:
        """Draws for rows of these slots, with drafts or without."""
        return draw()

    def score(self, logits: Float32, targets: Int32, num_logprobs: int) -> list[LogprobRow]:
        return self.inner.score(logits, targets, num_logprobs)


class TakesNobodyIn(SoundSampler):
    """Refuses a victim when it is to be prepared for the batch."""

    def add(
        self,
        slot: int,
        params: SamplingParams,
        eos_token_ids: Sequence[int],
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
    ) -> None:
        if MARK in prompt_token_ids:
            self.num_faults += 1
            raise KeyError("a parameter that nobody has checked")
        self.inner.add(slot, params, eos_token_ids, prompt_token_ids, output_token_ids)


class RaisesBeforeItDraws(SoundSampler):
    """A row of a victim raises before any token is drawn."""

    def draws(self, slots: Int32, draw: Callable[[], SampledRows]) -> SampledRows:
        if not self.victims.isdisjoint(slots.tolist()):
            self.num_faults += 1
            raise ValueError("a processor that fails")
        return draw()


class RaisesAfterItDrew(SoundSampler):
    """The same after all tokens were drawn and counted."""

    def draws(self, slots: Int32, draw: Callable[[], SampledRows]) -> SampledRows:
        rows = draw()
        if not self.victims.isdisjoint(slots.tolist()):
            self.num_faults += 1
            raise MemoryError("no room for the answer")
        return rows


class RaisesAtScores(SoundSampler):
    """Prompt logprobs of a victim raise."""

    def score(self, logits: Float32, targets: Int32, num_logprobs: int) -> list[LogprobRow]:
        if MARK in targets:
            self.num_faults += 1
            raise ValueError("a score that cannot be told")
        return self.inner.score(logits, targets, num_logprobs)


class TouchyTokenizer(Tokenizer):
    """Cannot spell the marked token."""

    num_faults: ClassVar[int] = 0

    def text_bytes(self, token_id: int, *, skip_special: bool) -> bytes:
        if token_id == MARK:
            type(self).num_faults += 1
            raise UnicodeError("no text for this token")
        return super().text_bytes(token_id, skip_special=skip_special)


# ---- victims


def marked_prompts(workload: Workload) -> Workload:
    """For each request of token ids one that begins alike and has a marked token anywhere behind that."""
    chance = random.Random(17)
    return tuple(
        replace(request, name=f"victim, {request.name}", prompt=_with_mark(request.prompt, chance))
        for request in workload
        if isinstance(request.prompt, tuple) and not request.messages
    )


def scored_prompts(workload: Workload) -> Workload:
    """The same, wanting prompt logprobs."""
    return tuple(
        replace(victim, params=victim.params.replace(prompt_logprobs=1, n=1)) for victim in marked_prompts(workload)
    )


def marked_ends(workload: Workload) -> Workload:
    """The mark is the last token of the prompt, or the first of the answer."""
    at_end = [replace(victim, prompt=(*victim.prompt, MARK)) for victim in marked_prompts(workload)]
    return (*at_end, *(replace(victim, name=f"{victim.name}, answer") for victim in marked_answers(workload)))


def marked_answers(workload: Workload) -> Workload:
    """For each request one with its prompt that answers with the marked token alone."""
    params = greedy(4, allowed_token_ids=(MARK,), n=2)
    return tuple(replace(request, name=f"victim, {request.name}", params=params) for request in workload)


def _with_mark(prompt: Sequence[object], chance: random.Random) -> tuple[int, ...]:
    at = chance.randrange(1, len(prompt) + 1)
    return (*prompt[:at], MARK, *prompt[at:])  # type: ignore[arg-type]


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong at one stage, and whom it befalls."""

    executor: type[SoundExecutor] = SoundExecutor
    sampler: type[SoundSampler] = SoundSampler
    victims: Callable[[Workload], Workload] = marked_prompts
    spoils_text: bool = False
    """It is the tokenizer that fails."""

    def words(self, config: EngineConfig) -> Words:
        """The language side, as the fault has it."""
        files = resolve(config.model.model)
        words = load_words(config, files)
        if not self.spoils_text:
            return words
        assert words.chat is not None
        tokenizer = TouchyTokenizer(read_gguf(open_checkpoint(files.files).metadata))
        return Words(tokenizer, words.chat, words.sampling_defaults)


FAULTS: Mapping[str, Fault] = {
    "prepare": Fault(sampler=TakesNobodyIn),
    "kernel refuses a prompt": Fault(Refuses),
    "kernel refuses an answer": Fault(Refuses, victims=marked_answers),
    "kernel runs out of memory": Fault(RunsOutOfMemory),
    "NaN in logits": Fault(NanLogits, victims=marked_ends),
    "NaN from the start of a step": Fault(NanFromTheStart),
    "sampler raises": Fault(sampler=RaisesBeforeItDraws),
    "sampler raises when it has drawn": Fault(sampler=RaisesAfterItDrew),
    "prompt logprobs": Fault(sampler=RaisesAtScores, victims=scored_prompts),
    "text": Fault(victims=marked_answers, spoils_text=True),
}
"""By stage."""


@dataclass
class Disturbed:
    """An `Instrument` that lets a fault happen, and counts how often it has."""

    fault: Fault
    parts: list[SoundExecutor | SoundSampler] = field(default_factory=list)

    def __call__(self, executor: ProgramExecutor, sampler: Sampler) -> tuple[ProgramExecutor, Sampler]:
        disturbed = self.fault.executor(executor), self.fault.sampler(sampler)
        self.parts += disturbed
        return disturbed

    @property
    def num_faults(self) -> int:
        """So far."""
        return sum(part.num_faults for part in self.parts)


def disturbed_llm(model: str, fields: Fields, fault: Fault, instrument: Instrument) -> LLM:
    """An `LLM` in which a fault happens."""
    config = EngineConfig.from_fields({"model": model, **fields})
    ticks = iter(range(10**9))
    core, info = build_core(config, resolve(model), lambda: 1e-6 * next(ticks), instrument)
    return LLM.over(core, fault.words(config), info)


@dataclass(frozen=True)
class BesideVictims:
    """All requests beside victims, all at once or as streams that take turns."""

    fault: Fault
    fields: Fields = field(default_factory=dict)
    streamed: bool = False

    def run(self, model: str, fields: Fields, workload: Workload) -> Transcripts:
        """See `Setting.run`."""
        victims = self.fault.victims(workload)
        everybody = [*victims, *workload]
        random.Random(5).shuffle(everybody)
        disturbed, before = Disturbed(self.fault), TouchyTokenizer.num_faults
        with disturbed_llm(model, {**fields, **self.fields}, self.fault, disturbed) as llm:
            answers = (in_turns if self.streamed else at_once)(llm, everybody)
            assert_settled(llm.load())
            llm._engine._core._scheduler._manager.check()  # type: ignore[attr-defined]
        assert disturbed.num_faults + TouchyTokenizer.num_faults - before >= len(victims) / 2
        for victim in victims:
            assert_failed(answers[victim.name])
        return {request.name: answers[request.name].transcript() for request in workload}


def at_once(llm: LLM, requests: Sequence[Request]) -> dict[str, Answer]:
    """Whole answers."""
    outputs = generate(llm, requests)
    return {request.name: Answer.whole(output) for request, output in zip(requests, outputs, strict=True)}


def in_turns(llm: LLM, requests: Sequence[Request]) -> dict[str, Answer]:
    """Streamed ones; all begin at once."""
    answers = {request.name: Answer(request.params.n) for request in requests}
    turning = deque((answers[r.name], llm.stream(prompt_of(llm, r), r.params)) for r in requests)
    while turning:
        answer, stream = turning.popleft()
        delta = next(stream, None)
        if delta is not None:
            answer.add(delta)
            turning.append((answer, stream))
    return answers


def assert_failed(answer: Answer) -> None:
    """Every choice has ended with an error that says something."""
    for choice in answer.choices:
        reason, _, error = choice.end
        assert reason is FinishReason.ERROR, choice.end
        assert isinstance(error, str) and len(error) > 10
