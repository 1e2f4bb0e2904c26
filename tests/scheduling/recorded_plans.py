"""Canonical workloads whose plans are recorded, and how to record them anew.

    python -m tests.scheduling.recorded_plans

writes `tests/data/plans/*.json`. Do that only for a change of decisions that is meant, and read the difference: the
files hold a line per step, so that version control shows which step decides otherwise.
"""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from octavo.scheduling.plan import StepPlan
from tests.scheduling.harness import FULL, WINDOWED, Engine, make_request

FOLDER = Path(__file__).parent.parent / "data" / "plans"
DEFAULTS = {"max_bypasses": 16, "admission_conservativeness": 0.5, "sub_block_match": True}
"""As a user gets them; the harness has plainer ones."""


def _traffic(engine: Engine, seed: int, count: int) -> None:
    """Arrivals over time: shared prefixes, tenants, priorities, salts; some end early or are aborted."""
    rng = random.Random(seed)
    for i in range(count):
        prompt = [*range(rng.choice([0, 6, 12, 20])), *[rng.randint(0, 2) for _ in range(rng.randint(1, 6))]]
        engine.add(
            make_request(
                f"r{i}",
                prompt,
                rng.randint(1, 12),
                priority=rng.randint(0, 2),
                tenant=rng.choice("xy"),
                cache_salt=rng.choice([None, None, None, "salt"]),
                eos=rng.choice([(), tuple(range(0, 1000, 11))]),
            )
        )
        for _ in range(rng.randint(0, 2)):
            if engine.scheduler.has_work:
                engine.step()
        if rng.random() < 0.05:
            engine.scheduler.abort(f"r{rng.randint(0, i)}")
    engine.run()


def _chunks_beside_decodes() -> Engine:
    engine = Engine(num_blocks=64, max_num_batched_tokens=16, long_prefill_token_threshold=12, **DEFAULTS)
    engine.add(*[make_request(f"decode{i}", 3, 20) for i in range(4)])
    engine.step()
    engine.add(make_request("long", 60, 4), make_request("short", 5, 4))
    engine.run()
    return engine


def _random(seed: int, **options: object) -> Callable[[], Engine]:
    def make() -> Engine:
        engine = Engine(**{**DEFAULTS, "num_blocks": 14, "max_model_len": 40, **options})
        _traffic(engine, seed, 24)
        return engine

    return make


WORKLOADS: dict[str, Callable[[], Engine]] = {
    "chunks_beside_decodes": _chunks_beside_decodes,
    "fcfs": _random(1),
    "fcfs_nothing_foreseen": _random(2, admission_conservativeness=0.0, max_bypasses=0),
    "fcfs_never_preempt": _random(3, admission_conservativeness=1.0, num_blocks=20),
    "priority": _random(4, scheduling_policy="priority", max_num_seqs=3),
    "prefix": _random(5, scheduling_policy="prefix", max_num_seqs=2),
    "cheapest_victims": _random(7, preemption_victim="cheapest", admission_conservativeness=0.0, num_blocks=11),
    "fair_shares": _random(7, fair_share=True, fair_weights=("x=3",), max_running_per_key=3),
    "two_cache_groups": _random(8, layers=(FULL, WINDOWED), num_blocks=28),
}


def lines_of(plans: list[StepPlan]) -> Iterator[str]:
    """One line of JSON per plan: what it says about whom, defaults left out."""
    for plan in plans:
        new = {data.request_id: {"tokens": len(data.token_ids), "blocks": data.block_ids} for data in plan.new_requests}
        runs = zip(
            plan.request_ids, plan.num_computed_tokens, plan.num_scheduled_tokens, plan.new_block_ids, strict=True
        )
        line = {
            "step": plan.step,
            "run": {name: [computed, count, *([ids] if any(ids) else [])] for name, computed, count, ids in runs},
            "new": new,
            "copies": plan.block_copies,
            "swaps": plan.block_swaps,
            "preempted": plan.preempted_request_ids,
            "finished": plan.finished_request_ids,
        }
        yield json.dumps(msgspec.to_builtins({key: value for key, value in line.items() if value or key == "step"}))


def main() -> None:
    """Records all workloads."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make in WORKLOADS.items():
        (FOLDER / f"{name}.jsonl").write_text("\n".join(lines_of(make().plans)) + "\n")
        print(f"{name}: recorded")


if __name__ == "__main__":
    main()
