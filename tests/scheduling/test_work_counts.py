"""What is booked for requests against what steps have run: over all of them the same, to the row."""

import random
from collections import Counter

import pytest

from octavo.kv.record import Tier
from octavo.request.account import MAX_BLOCK_SAMPLES, MAX_CHUNK_RUNS, Account, Phase
from octavo.request.outputs import RequestStats
from octavo.scheduling.block_curve import BlockCurve
from octavo.scheduling.plan import StepPlan, StepResult
from octavo.scheduling.request_book import RequestBook
from octavo.visible_pairs import visible_pairs
from tests.scheduling.draft_scripts import half_right
from tests.scheduling.harness import FULL, WINDOWED, Engine, make_request

REACHES = (None, 8)


class Watched:
    """Counts what an executor runs, at the moment at which it does: then it is known what became of drafts."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._executor = engine, engine.executor
        self.rows: Counter[str] = Counter()
        self.num_steps = 0

    def execute(self, plan: StepPlan) -> StepResult:
        result = self._executor.execute(plan)
        self.num_steps += 1
        drafts = plan.num_draft_tokens or (0,) * len(plan.request_ids)
        ran = result.num_draft_tokens or (0,) * len(plan.request_ids)
        columns = zip(
            plan.request_ids, plan.num_scheduled_tokens, plan.num_computed_tokens, drafts, ran, result.token_ids,
            strict=True,
        )  # fmt: skip
        for name, count, start, num_drafts, num_ran, token_ids in columns:
            live = self._engine.scheduler.live(name)
            end = start + count - num_drafts
            if live is not None:
                end, count = min(end, len(live.token_ids)) + num_ran, count - num_drafts + num_ran
            else:  # it has ended, and its ledger with it
                end += num_drafts
            self.rows["rows"] += count
            self.rows["sampled"] += 1 + num_ran if token_ids and live is not None else 0
            for reach in REACHES:
                self.rows[f"pairs {reach}"] += visible_pairs(count, end, reach)
                self.rows[f"read {reach}"] += end if reach is None else min(end, count - 1 + reach)
        return result


def booked(ledgers: list[RequestStats]) -> Counter[str]:
    rows: Counter[str] = Counter()
    for stats in ledgers:
        assert stats.account is not None
        for work in stats.account.work.values():
            rows["rows"] += work.num_tokens
            rows["sampled"] += work.num_sampled
            for place, reach in enumerate(REACHES):
                rows[f"pairs {reach}"] += work.num_pairs[place]
                rows[f"read {reach}"] += work.num_read[place]
    return rows


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("seed", [1, 2])
def test_over_all_requests_it_is_what_has_run(ahead: bool, drafts: int, seed: int) -> None:
    """Little memory, so that some are preempted and run again; prefixes in common; a tier behind the device."""
    rng = random.Random(seed)
    engine = Engine(
        num_blocks=22,
        layers=(FULL, WINDOWED),
        max_num_seqs=4,
        max_num_batched_tokens=14,
        async_scheduling=ahead,
        num_drafts=drafts,
        drafts=half_right,
        tiers={Tier.HOST: 60},
    )
    watched = Watched(engine)
    engine.executor = watched  # type: ignore[assignment]
    ledgers = []
    for i in range(40):
        prompt = [*range(rng.choice([0, 8, 16])), *rng.sample(range(100, 900), rng.randint(1, 9))]
        engine.add(make_request(f"r{i}", prompt, rng.randint(1, 14)))
        for _ in range(rng.randint(0, 3)):
            engine.step()
        live = engine.scheduler.live(f"r{rng.randint(0, i)}")
        if live is not None and i % 5 == 0 and not engine.in_flight:
            engine.scheduler.abort(live.request_id, engine.now_s)
            ledgers.append(live.ledger(engine.now_s))
    engine.run()
    ledgers += [engine.stats(name) for name in engine.finished]
    assert len(ledgers) == 40
    load = engine.scheduler.load()
    assert load.counters["preemptions"] and load.counters["cached_tokens"] and load.counters["host_loaded_tokens"]
    expected, found = watched.rows, booked(ledgers)
    if ahead:  # the rows of a step that comes after an end that nobody foresaw are booked, and sample nothing
        del expected["sampled"], found["sampled"]
    assert found == expected
    shares = sum(work.share for stats in ledgers for work in stats.account.work.values())  # type: ignore[union-attr]
    assert shares == pytest.approx(watched.num_steps)


def test_chunks_are_told_as_runs_of_equal_steps() -> None:
    engine = Engine(max_num_batched_tokens=8, max_model_len=128)
    engine.generate(make_request("a", 34, 30))
    runs = account(engine, "a").chunks
    assert [(run.phase, run.start, run.size, run.num_steps, run.num_tokens) for run in runs] == [
        (Phase.PREFILL, 0, 8, 4, 32),
        (Phase.PREFILL, 32, 2, 1, 2),
        (Phase.DECODE, 34, 1, 29, 29),
    ]
    assert [(run.first_step, run.last_step) for run in runs] == [(0, 3), (4, 4), (5, 33)]


def test_a_list_of_chunks_is_bounded_and_still_adds_up() -> None:
    book = RequestBook(5000, 0.0, REACHES)
    place = 0
    for step in range(100):
        book.planned(step, place, step % 7 + 1, 0, 0, 0, 0.5)
        place += step % 7 + 1
    book.planned(100, 5000, 1, 0, 1, 0, 0.5)
    kept = book.account(1.0)
    assert kept is not None and len(kept.chunks) <= MAX_CHUNK_RUNS
    assert sum(run.num_tokens for run in kept.chunks) == place + 1 and sum(run.num_steps for run in kept.chunks) == 101
    assert kept.chunks[-1].phase is Phase.DECODE and kept.chunks[-1].size == 1
    (mixed,) = [run for run in kept.chunks if run.size == 0]
    assert mixed.phase is Phase.PREFILL and mixed.last_step == 99


def test_blocks_over_time_are_bounded_and_the_sum_is_exact() -> None:
    curve = BlockCurve()
    for moment in range(1000):
        curve.hold(moment // 3 + 1, float(moment))
    assert curve.block_seconds(1000.0) == sum(moment // 3 + 1 for moment in range(1000))
    samples = curve.samples()
    assert samples[0] == (0.0, 1) and samples[-1] == (999.0, 334) and len(samples) <= MAX_BLOCK_SAMPLES + 1
    assert all(count == int(moment) // 3 + 1 for moment, count in samples)


def test_blocks_of_a_request() -> None:
    engine = Engine(max_num_batched_tokens=8)
    engine.generate(make_request("a", 8, 6))
    kept = account(engine, "a")
    assert kept.blocks == [(0.0, 2), (1.0, 3), (5.0, 4)]
    assert kept.block_seconds == 2 * 1 + 3 * 4


def account(engine: Engine, name: str) -> Account:
    kept = engine.stats(name).account
    assert isinstance(kept, Account)
    return kept
