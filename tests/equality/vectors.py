"""Vectors of prompts beside answers, in one engine."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from octavo import LLM, PoolingParams
from octavo.engine.embedding import EmbeddingOutput, EmbeddingStream
from octavo.engine.input import RequestOptions
from octavo.engine.output_processor import RequestStream
from tests.equality.settings import Fields, assert_grown, assert_settled, prompt_of
from tests.equality.tiny_models import POISON
from tests.equality.workload import Workload

Vectors = dict[str, bytes]
"""By the name of the request."""


@dataclass(frozen=True)
class Wanted:
    """A vector that is wanted of a prompt."""

    name: str
    prompt: tuple[int, ...]
    params: PoolingParams


POOLINGS = {
    "last": PoolingParams(),
    "mean": PoolingParams(pooling="mean"),
    "mean, cut, as it is": PoolingParams(pooling="mean", normalize=False, dimensions=17),
}


def vectors_of(*lengths: int, vocab_size: int, shared: int = 0) -> tuple[Wanted, ...]:
    """Every kind of vector of prompts of these lengths; the longer ones begin with the same `shared` tokens."""
    words = random.Random(17)
    common = [words.randrange(8, vocab_size) for _ in range(shared)]
    prompts = [
        tuple([*common, *[words.randrange(8, vocab_size) for _ in range(length)]][: max(length, 1)])
        if length > shared
        else tuple(words.randrange(8, vocab_size) for _ in range(length))
        for length in lengths
    ]
    return tuple(
        Wanted(f"{kind} of {len(prompt)} tokens, prompt {index}", prompt, params)
        for index, prompt in enumerate(prompts)
        for kind, params in POOLINGS.items()
    )


@dataclass(frozen=True)
class Company:
    """All vectors at once, and others that run among them."""

    fields: Fields = field(default_factory=dict)
    at_least: Mapping[str, float] = field(default_factory=dict)
    """Counters that must have grown by so much."""
    least_preempted: int = 0
    """Preemptions of requests for vectors."""
    again: bool = False
    """Whether there is a second time, with what the first left in the prefix cache. Both give the same vectors."""

    def run(self, model: str, fields: Fields, wanted: Sequence[Wanted], neighbours: Workload = ()) -> Vectors:
        """The vectors."""
        with LLM(model, **{**fields, **self.fields}) as llm:
            firsts = together(llm, wanted, neighbours) if self.again else []
            before = llm.load()
            outputs = together(llm, wanted, neighbours)
            assert_settled(llm.load())
            assert_grown(before, llm.load(), self.at_least)
        num_preempted = sum(output.stats.num_preemptions for output in outputs if output.stats)
        assert num_preempted >= self.least_preempted, num_preempted
        assert [checked(output) for output in firsts] == [checked(output) for output in outputs] or not self.again
        return {each.name: checked(output) for each, output in zip(wanted, outputs, strict=True)}


def with_poison(wanted: Sequence[Wanted]) -> tuple[Wanted, ...]:
    """The same prompts with a token somewhere whose embedding is no number."""
    chance = random.Random(19)
    spoiled = []
    for each in wanted:
        at = chance.randrange(len(each.prompt))
        prompt = (*each.prompt[:at], chance.choice(list(POISON)), *each.prompt[at:])
        spoiled.append(replace(each, name=f"poisoned, {each.name}", prompt=prompt))
    return tuple(spoiled)


def one_by_one(model: str, fields: Fields, wanted: Sequence[Wanted]) -> Vectors:
    """Each with an engine that has seen nothing. What all others are compared with."""
    found: Vectors = {}
    for each in wanted:
        with LLM(model, **fields) as llm:
            (output,) = llm.embed(list(each.prompt), each.params)
        found[each.name] = checked(output)
    return found


def together(llm: LLM, wanted: Sequence[Wanted], neighbours: Workload) -> list[EmbeddingOutput]:
    """Requests of both kinds in the same steps: every vector's request is followed by one of the others, as long as
    there are some. The public calls make either vectors or answers."""
    vectors = [
        EmbeddingStream(
            llm._input.prepare_pooled(f"vector-{i}", list(each.prompt), each.params, RequestOptions()), None
        )
        for i, each in enumerate(wanted)
    ]
    answers = [
        RequestStream(llm._input.prepare(f"answer-{i}", prompt_of(llm, other), other.params, RequestOptions()), None)
        for i, other in enumerate(neighbours)
    ]
    mixed = [stream for pair in zip(vectors, answers, strict=False) for stream in pair]
    mixed += [*vectors[len(answers) :], *answers[len(vectors) :]]
    outputs = {output.request_id: output for output in llm._engine.run(mixed, llm._engine.clock())}
    return [outputs[stream.request.request_id] for stream in vectors]


def checked(output: EmbeddingOutput) -> bytes:
    """The vector of a request that went well."""
    assert output.error is None, output.error
    assert output.vector
    return output.vector
