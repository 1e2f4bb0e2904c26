"""Ways to run a workload inside this process. Each gives one transcript per request."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from octavo import LLM
from octavo.engine.output import GenerationOutput
from octavo.request.control import EngineLoad
from tests.equality.transcript import Answer, Transcripts
from tests.equality.workload import Request, Workload, in_order, shuffled

Fields = Mapping[str, object]
"""Fields of the config dataclasses."""


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
        return {request.name: self._answer(model, {**fields, **self.fields}, request) for request in workload}

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
        with LLM(model, **{**fields, "enable_prefix_caching": False, **self.fields}) as llm:
            answers = {request.name: Answer.whole(*generate(llm, [request])) for request in workload}
            assert_settled(llm.load())
        return answers


@dataclass(frozen=True)
class Crowd:
    """All requests at once."""

    fields: Fields = field(default_factory=dict)
    order: Callable[[Workload], Workload] = in_order
    at_least: Mapping[str, float] = field(default_factory=dict)
    """Counters that must have grown by so much in the run: a setting that brings nothing about proves nothing."""

    def run(self, model: str, fields: Fields, workload: Workload) -> Transcripts:
        """See `Setting.run`."""
        with LLM(model, **{**fields, **self.fields}) as llm:
            return crowd(llm, self.order(workload), self.at_least)


@dataclass(frozen=True)
class Again:
    """All requests at once for the second time, with what the first left in the prefix cache."""

    fields: Fields = field(default_factory=dict)
    forget: bool = False
    """Whether the cache is reset in between."""
    order: Callable[[Workload], Workload] = shuffled
    at_least: Mapping[str, float] = field(default_factory=dict)

    def run(self, model: str, fields: Fields, workload: Workload) -> Transcripts:
        """See `Setting.run`."""
        with LLM(model, **{**fields, **self.fields}) as llm:
            crowd(llm, workload)
            if self.forget:
                assert llm.reset_prefix_cache()
                assert llm.load().num_cached_blocks == 0
            return crowd(llm, self.order(workload), self.at_least)


@dataclass(frozen=True)
class Streamed:
    """One stream after the other, delta by delta."""

    fields: Fields = field(default_factory=dict)

    def run(self, model: str, fields: Fields, workload: Workload) -> Transcripts:
        """See `Setting.run`."""
        with LLM(model, **{**fields, **self.fields}) as llm:
            answers = {request.name: self._answer(llm, request) for request in workload}
            assert_settled(llm.load())
        return {name: answer.transcript() for name, answer in answers.items()}

    @staticmethod
    def _answer(llm: LLM, request: Request) -> Answer:
        answer = Answer(request.params.n)
        for delta in llm.stream(prompt_of(llm, request), request.params):
            answer.add(delta)
        return answer


def crowd(llm: LLM, workload: Workload, at_least: Mapping[str, float] | None = None) -> Transcripts:
    """Answers all requests at once; afterwards nothing may be held."""
    before = llm.load().counters
    outputs = generate(llm, workload)
    load = llm.load()
    assert_settled(load)
    for name, least in (at_least or {}).items():
        grown = load.counters[name] - before[name]
        assert grown >= least, f"{name} grew by {grown}, the setting needs {least}"
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
