"""Ways to run a workload inside this process. Each gives one transcript per request."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from octavo import LLM
from octavo.engine.output import GenerationOutput
from octavo.request.control import EngineLoad
from tests.equality.transcript import Answer, Transcripts, assert_same
from tests.equality.workload import Request, Workload, in_order, nobody, shuffled

Fields = Mapping[str, object]
"""Fields of the config dataclasses."""

NO_DRAFTS: Fields = {"speculation": "off"}
"""What all else is compared with has none. Settings that say nothing run as engines do by default: with as many as
pay."""
NOTHING_FORESEEN: Fields = {"admission_conservativeness": 0.0}
"""Requests are admitted although they will not fit to their end, so that a small pool preempts often."""


class Setting(Protocol):
    """A way to run a workload."""

    def run(self, model: str, fields: Fields, workload: Workload) -> Transcripts:
        """Answers all requests.

        Args:
            fields: the same for all settings of a comparison; the setting's own go first.
        """
        ...


@dataclass(frozen=True)
class Alone:
    """One request after the other, each with an engine that has seen nothing. What all others are compared with."""

    fields: Fields = field(default_factory=dict)

    def run(self, model: str, fields: Fields, workload: Workload) -> Transcripts:
        """See `Setting.run`."""
        return {name: answer.transcript() for name, answer in self.answers(model, fields, workload).items()}

    def answers(self, model: str, fields: Fields, workload: Workload) -> dict[str, Answer]:
        """Whole answers, from which other views can be made."""
        return {
            request.name: self._answer(model, {**fields, **self.fields, **NO_DRAFTS}, request) for request in workload
        }

    @staticmethod
    def _answer(model: str, fields: Fields, request: Request) -> Answer:
        with LLM(model, **fields) as llm:
            (output,) = generate(llm, [request])
            assert_settled(llm.load())
        return Answer.whole(output)


@dataclass(frozen=True)
class AloneUncached:
    """One request after the other in one engine without a prefix cache: for models that take long to load."""

    fields: Fields = field(default_factory=dict)

    def run(self, model: str, fields: Fields, workload: Workload) -> Transcripts:
        """See `Setting.run`."""
        return {name: answer.transcript() for name, answer in self.answers(model, fields, workload).items()}

    def answers(self, model: str, fields: Fields, workload: Workload) -> dict[str, Answer]:
        """Whole answers, from which other views can be made."""
        with LLM(model, **{**fields, "enable_prefix_caching": False, **self.fields, **NO_DRAFTS}) as llm:
            answers = {request.name: Answer.whole(*generate(llm, [request])) for request in workload}
            assert_settled(llm.load())
        return answers


@dataclass(frozen=True)
class Crowd:
    """All requests at once."""

    fields: Fields = field(default_factory=dict)
    order: Callable[[Workload], Workload] = in_order
    neighbours: Callable[[Workload], Workload] = nobody
    """Others that run among them, and whose answers do not matter."""
    at_least: Mapping[str, float] = field(default_factory=dict)
    """Counters that must have grown by so much in the run: a setting that brings nothing about proves nothing."""

    def run(self, model: str, fields: Fields, workload: Workload) -> Transcripts:
        """See `Setting.run`."""
        everybody = self.order((*self.neighbours(workload), *workload))
        with LLM(model, **{**fields, **self.fields}) as llm:
            transcripts = crowd(llm, everybody, self.at_least)
        return {request.name: transcripts[request.name] for request in workload}


@dataclass(frozen=True)
class Again:
    """All requests at once, twice: then with what the first time left in the prefix cache. Both answer the same."""

    fields: Fields = field(default_factory=dict)
    forget: bool = False
    """Whether the cache is reset in between."""
    order: Callable[[Workload], Workload] = shuffled
    """Of the second time."""
    at_least: Mapping[str, float] = field(default_factory=dict)

    def run(self, model: str, fields: Fields, workload: Workload) -> Transcripts:
        """See `Setting.run`."""
        with LLM(model, **{**fields, **self.fields}) as llm:
            first = crowd(llm, workload)
            if self.forget:
                assert llm.reset_prefix_cache()
                assert llm.load().num_cached_blocks == 0
            second = crowd(llm, self.order(workload), self.at_least)
        assert_same(first, second)
        return second


@dataclass(frozen=True)
class Streamed:
    """Streams that take turns, one delta each; the next one begins with every turn."""

    fields: Fields = field(default_factory=dict)

    def run(self, model: str, fields: Fields, workload: Workload) -> Transcripts:
        """See `Setting.run`."""
        answers = {request.name: Answer(request.params.n) for request in workload}
        with LLM(model, **{**fields, **self.fields}) as llm:
            waiting = deque(self._stream(llm, request, answers[request.name]) for request in workload)
            turning: deque[Iterator[None]] = deque()
            while waiting or turning:
                turning.extend(waiting.popleft() for _ in range(min(1, len(waiting))))
                turning = deque(stream for stream in turning if next(stream, "ended") is None)
            assert_settled(llm.load())
        return {name: answer.transcript() for name, answer in answers.items()}

    @staticmethod
    def _stream(llm: LLM, request: Request, answer: Answer) -> Iterator[None]:
        for delta in llm.stream(prompt_of(llm, request), request.params):
            answer.add(delta)
            yield


@dataclass(frozen=True)
class SharedByThreads:
    """Threads that share one `LLM`, each with a request at a time."""

    fields: Fields = field(default_factory=dict)
    num_callers: int = 8

    def run(self, model: str, fields: Fields, workload: Workload) -> Transcripts:
        """See `Setting.run`."""
        with LLM(model, **{**fields, **self.fields}) as llm, ThreadPoolExecutor(self.num_callers) as callers:
            answers = callers.map(lambda request: Answer.whole(*generate(llm, [request])), workload)
            transcripts = {request.name: seen.transcript() for request, seen in zip(workload, answers, strict=True)}
            assert_settled(llm.load())
        return transcripts


def crowd(llm: LLM, workload: Workload, at_least: Mapping[str, float] | None = None) -> Transcripts:
    """Answers all requests at once; afterwards nothing may be held."""
    before = llm.load()
    outputs = generate(llm, workload)
    after = llm.load()
    assert_settled(after)
    assert_grown(before, after, at_least or {})
    return {request.name: Answer.whole(output).transcript() for request, output in zip(workload, outputs, strict=True)}


def generate(llm: LLM, requests: Sequence[Request]) -> list[GenerationOutput]:
    """The answers to some requests at once."""
    return llm.generate([prompt_of(llm, request) for request in requests], [request.params for request in requests])


def prompt_of(llm: LLM, request: Request) -> str | list[int]:
    """What `LLM.generate` takes."""
    if request.messages:
        return llm.render_chat(request.messages)
    return request.prompt if isinstance(request.prompt, str) else list(request.prompt)  # type: ignore[arg-type]


def assert_settled(load: EngineLoad) -> None:
    """Nothing runs or waits, and no block is held."""
    assert (load.num_running, load.num_waiting) == (0, 0), load
    assert load.num_free_blocks == load.num_blocks, load


def assert_grown(before: EngineLoad, after: EngineLoad, at_least: Mapping[str, float]) -> None:
    """Counters have grown by so much."""
    for name, least in at_least.items():
        grown = after.counters[name] - before.counters[name]
        assert grown >= least, f"{name} grew by {grown}, the setting needs {least}"


def pool_of(model: str, num_tokens: int, kv_cache_dtype: object = "fp16") -> Fields:
    """KV memory for so many tokens, whatever the model's shape."""
    with LLM(model, kv_cache_dtype=kv_cache_dtype) as llm:
        return {"kv_cache_memory_bytes": num_tokens * llm.info.kv_bytes_per_token}
