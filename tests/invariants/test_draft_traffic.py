"""Random traffic with drafts: right, wrong and half right ones, in every setting of the scheduler.

As without them the harness verifies conservation and the scripted executor every plan and every read of the KV memory,
which holds garbage wherever a wrong draft was. Here: everybody gets the tokens it gets alone, drafts preempt nobody, no
block of theirs is kept, published, or looked at.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from tests.effort import times
from tests.invariants.test_async_traffic import FailingParts, Interleavings
from tests.invariants.test_random_traffic import (
    CONTEXT,
    Traffic,
    check_that_all_finish,
    engine_options,
    make_engine,
    requests,
    seeded_traffic,
)
from tests.scheduling import draft_scripts
from tests.scheduling.harness import FULL, WINDOWED, alone

draft_options = st.fixed_dictionaries(
    {"num_drafts": st.sampled_from([1, 2, 5, 13]), "drafts": st.sampled_from(draft_scripts.ALL)}
)


class DraftTraffic(Traffic):
    """Whole steps with drafts in them."""

    @initialize(options=engine_options, drafts=draft_options)
    def start(self, options, drafts):
        self.open(make_engine({**options, **drafts}))


class DraftInterleavings(Interleavings):
    """Steps planned ahead, before it is known which drafts of the step before were right."""

    @initialize(options=engine_options, drafts=draft_options)
    def start(self, options, drafts):
        self.failing = FailingParts()
        self.open(make_engine({**options, **drafts, "async_scheduling": True, "faults": self.failing}))
        self.most_discarded = 1 + drafts["num_drafts"]


TestDraftTraffic = DraftTraffic.TestCase
TestDraftTraffic.settings = settings(max_examples=times(50), stateful_step_count=30)
TestDraftInterleavings = DraftInterleavings.TestCase
TestDraftInterleavings.settings = settings(max_examples=times(50), stateful_step_count=30)


@pytest.mark.slow
class TestMuchDraftTraffic(DraftTraffic.TestCase):
    """The same for longer, with other examples."""

    settings = settings(max_examples=times(60), stateful_step_count=60)


@pytest.mark.slow
class TestManyDraftInterleavings(DraftInterleavings.TestCase):
    """The same for longer, with other examples."""

    settings = settings(max_examples=times(60), stateful_step_count=60)


@settings(max_examples=40)
@given(engine_options, draft_options, st.booleans(), st.data())
def test_any_finite_set_of_requests_finishes_in_a_pool_for_one(options, drafts, ahead, data):
    options = {**options, **drafts, "spare_blocks": 0, "async_scheduling": ahead}
    check_that_all_finish(make_engine(options), data)


@settings(max_examples=40)
@given(engine_options, draft_options, st.data())
def test_drafts_displace_nobody(options, drafts, data):
    """Step by step, what runs beside drafts is what runs without any: with drafts that are all wrong the two engines
    do the same work, preempt the same requests at the same time and end with the same free blocks."""
    wanted = [data.draw(requests(f"r{i}")) for i in range(data.draw(st.integers(1, 8)))]
    plain, drafted = make_engine(options), make_engine({**options, **drafts, "drafts": draft_scripts.wrong})
    for engine in (plain, drafted):
        engine.add(*wanted)
        engine.run(max_steps=5000)
    assert plain.tokens == drafted.tokens and plain.finished == drafted.finished
    assert len(plain.plans) == len(drafted.plans)
    for without, beside in zip(plain.plans, drafted.plans, strict=True):
        assert without.request_ids == beside.request_ids
        assert without.preempted_request_ids == beside.preempted_request_ids
        assert without.num_computed_tokens == beside.num_computed_tokens
        extra = beside.num_draft_tokens or (0,) * len(beside.request_ids)
        scheduled = tuple(count - more for count, more in zip(beside.num_scheduled_tokens, extra, strict=True))
        assert without.num_scheduled_tokens == scheduled
    assert plain.counters["computed_tokens"] == (drafted.counters["computed_tokens"] - drafted.counters["draft_tokens"])


@pytest.mark.parametrize("ahead", [False, True])
def test_seeded_traffic_reaches_the_rare_paths_and_survives_them(ahead):
    reached = dict.fromkeys(("draft_tokens", "accepted_draft_tokens", "preemptions", "cached_tokens"), 0)
    for seed in range(16):
        layers, pool = ((FULL, WINDOWED), (18, 30)) if seed % 2 else ((FULL,), (10, 16))
        engine, wanted = seeded_traffic(
            seed,
            pool,
            tuple(range(0, 1000, 9)),
            layers=layers,
            sub_block_match=True,
            async_scheduling=ahead,
            num_drafts=3 + seed % 5,
            drafts=draft_scripts.half_right,
        )
        for request in wanted:
            if engine.finished.get(request.request_id) in ("stop", "length"):
                assert engine.tokens[request.request_id] == alone(request, CONTEXT)
        assert engine.manager.num_free_blocks == engine.manager.num_blocks
        for name in reached:
            reached[name] += engine.counters[name]
    assert all(reached.values()), reached
