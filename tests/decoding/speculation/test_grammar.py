"""What a grammar forces, as the guided sampler tells it to the proposer."""

from collections.abc import Sequence
from typing import cast

from octavo.decoding.speculation.grammar import CUT_RIGHT, GrammarProposer
from octavo.decoding.structured.backend import CompiledGrammar
from octavo.decoding.structured.guide import Guide
from octavo.decoding.structured.guided_sampler import GuidedSampler
from octavo.execution.protocols import Sampler
from octavo.request.params import SamplingParams
from octavo.request.reasoning import ReasoningSpec
from octavo.request.structured import StructuredKind, StructuredSpec
from tests.decoding.structured.walks import BACKEND, END, MARK, TOKENS, encode

CLOSE = TOKENS.index(b"</tool_call>")
SPEC = StructuredSpec(kind=StructuredKind.REGEX, source='[ab]\\{"name": "(true|false)"\\}')


class Inner:
    """Holds nothing and draws nothing."""

    def add(
        self, slot: int, params: SamplingParams, eos: Sequence[int], prompt: Sequence[int], output: Sequence[int]
    ) -> None: ...

    def remove(self, slot: int) -> None: ...


class Source:
    """Compiles when it is asked."""

    def of(self, spec: StructuredSpec) -> CompiledGrammar:
        return BACKEND.compile(spec)

    def forget(self, spec: StructuredSpec) -> None: ...


def sampler_with(*answers: bytes | None) -> GuidedSampler:
    """Slot i has answer i so far; None: a request without a shape."""
    sampler = GuidedSampler(cast(Sampler, Inner()), Source(), len(TOKENS))
    for slot, answer in enumerate(answers):
        spec = None if answer is None else SPEC
        sampler.add(slot, SamplingParams(structured_outputs=spec), (END,), (), list(answer or b""))
    return sampler


def test_what_the_shape_forces_is_drafted() -> None:
    proposer = GrammarProposer(sampler_with(b"", b"a", b'b{"name": "t', None))
    drafts = proposer.propose([0, 1, 2, 3], [16] * 4)
    texts = [b"".join(TOKENS[token] for token in draft.token_ids) for draft in drafts]
    assert texts[0] == b"", "there is a choice"
    assert b'{"name": "'.startswith(texts[1])
    assert len(texts[1]) > 5
    assert b'rue"}'.startswith(texts[2])
    assert texts[2].startswith(b"rue")
    assert texts[3] == b""
    assert all(list(draft.chances) == [CUT_RIGHT] * len(draft.token_ids) for draft in drafts)


def test_it_follows_the_answer_and_is_bounded() -> None:
    sampler = sampler_with(b"a")
    proposer = GrammarProposer(sampler)
    (whole,) = proposer.propose([0], [16])
    assert len(whole.token_ids) > 1
    assert proposer.propose([0], [1])[0].token_ids == whole.token_ids[:1]
    assert proposer.propose([0], [16]) == [whole], "asking moves nothing"
    sampler.remove(0)
    assert sampler.forced_tokens(0) == []


def test_nothing_is_forced_while_reasoning_is_open_or_may_begin() -> None:
    marked = ReasoningSpec(begins=((MARK,),), ends=((CLOSE,),))
    spec = StructuredSpec(kind=StructuredKind.REGEX, source='\\{"name": (true|false)\\}')
    params = SamplingParams(structured_outputs=spec, reasoning=marked, max_tokens=100)
    guide = Guide(BACKEND.compile(spec), spec, params, (END,), ())
    assert guide.forced_tokens() == [], "a marker may come instead"
    guide.follow(MARK)
    assert guide.forced_tokens() == []
    for token in encode("the cat"):
        guide.follow(token)
    assert guide.forced_tokens() == []
    guide.follow(CLOSE)
    assert b"".join(TOKENS[token] for token in guide.forced_tokens()).startswith(b'{"name"')
