"""Random traffic in which some answers have a shape: grammars that take their time or cannot be had, answers that end
because they are whole, aborts while compiling, faults, in turn and planned ahead.

The harness and the scripted executor check as in `test_random_traffic`, and that nobody runs without its grammar. Here:
the tokens are those a request gets alone, up to where its answer is whole; no grammar is kept for anybody who has
ended; nobody waits for ever.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from octavo.execution.scripted_grammars import GrammarFate
from octavo.request.params import SamplingParams
from octavo.request.request import GenerateRequest
from octavo.request.structured import StructuredKind, StructuredSpec
from tests.effort import times
from tests.invariants.test_async_traffic import FailingParts
from tests.invariants.test_random_traffic import CONTEXT, TrafficRules, engine_options, make_engine, requests
from tests.scheduling.harness import alone

BAD = "a shape that cannot be had"


def fate(spec: StructuredSpec) -> GrammarFate:
    return GrammarFate(2, "no") if spec.source == BAD else GrammarFate(int(spec.source))


def is_whole(token_ids: list[int], num_prompt_tokens: int, params: SamplingParams) -> bool:
    """One in six answers, wherever it stands."""
    return (7 * token_ids[-1] + len(token_ids)) % 6 == 0


def with_shape(request: GenerateRequest, source: str | None) -> GenerateRequest:
    if source is None:
        return request
    spec = StructuredSpec(kind=StructuredKind.REGEX, source=source)
    params = request.params.replace(structured_outputs=spec)
    return GenerateRequest(**{f: getattr(request, f) for f in request.__struct_fields__} | {"params": params})


def expected_tokens(request: GenerateRequest) -> list[int]:
    """What it gets alone, up to where the answer is whole."""
    spec, tokens = request.params.structured_outputs, alone(request, CONTEXT)
    if spec is None:
        return tokens
    if spec.source == BAD:
        return []
    prompt = list(request.prompt_token_ids)
    ends = (n for n in range(1, len(tokens) + 1) if is_whole(prompt + tokens[:n], len(prompt), request.params))
    return tokens[: next(ends, len(tokens))]


class GrammarTraffic(TrafficRules):
    """What the core's thread may do, in any order."""

    @initialize(options=engine_options, ahead=st.booleans())
    def start(self, options, ahead):
        self.failing = FailingParts()
        more = {"async_scheduling": ahead, "faults": self.failing, "grammars": fate, "completes": is_whole}
        self.open(make_engine({**options, **more}))

    @rule(
        data=st.data(), source=st.sampled_from([None, "0", "1", "3", "9", BAD]), fails=st.sampled_from([None, None, 9])
    )
    def arrive(self, data, source, fails):
        name = f"r{len(self.requests)}"
        request = self.requests[name] = with_shape(data.draw(requests(name)), source)
        self.engine.add(request)
        if fails is not None:
            self.failing.at[name] = fails

    @rule()
    def plan(self):
        self.engine.plan_ahead()

    @precondition(lambda self: self.engine.in_flight)
    @rule()
    def land(self):
        self.engine.land()

    @rule(count=st.integers(1, 5))
    def step(self, count):
        for _ in range(count):
            if self.engine.scheduler.has_work or self.engine.in_flight:
                self.engine.step()

    @rule()
    def time_passes(self):
        self.engine.grammars.tick()

    def teardown(self):
        super().teardown()
        if hasattr(self, "engine"):
            self.engine._pass_on_grammar_orders()
            assert self.engine.grammars.tickets == frozenset()
            assert len(self.engine.scheduler._grammars) == 0

    def check_ends(self) -> None:
        engine = self.engine
        for name, request in self.requests.items():
            expected, got = expected_tokens(request), engine.tokens[name]
            last_computed = len(request.prompt_token_ids) + len(expected) - 1
            if name in self.aborted:
                assert got == expected[: len(got)]
            elif not expected:
                assert engine.finished[name] == "error"
                assert got == []
            elif self.failing.at.get(name, 10**9) <= last_computed:
                assert engine.finished[name] == "error"
                assert got == expected[: len(got)]
            else:
                assert engine.finished[name] in ("stop", "length")
                assert got == expected


TestGrammarTraffic = GrammarTraffic.TestCase
TestGrammarTraffic.settings = settings(max_examples=times(50), stateful_step_count=30)


@pytest.mark.slow
class TestMuchGrammarTraffic(GrammarTraffic.TestCase):
    """The same for longer, with other examples."""

    settings = settings(max_examples=times(60), stateful_step_count=60)
