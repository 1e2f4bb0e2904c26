"""What the scheduler costs, and what its policies buy, without any execution.

    python benchmarks/scheduler.py decodes --num-seqs 256       time of schedule + update per step
    python benchmarks/scheduler.py prefix --waiting 10000       the same with a queue kept in order of cached prefixes
    python benchmarks/scheduler.py endurance --requests 1000000 memory over a long life
    python benchmarks/scheduler.py admission                    steps and preemptions by admission_conservativeness

Times are milliseconds of processor time of this thread. Tokens are made up; blocks of 16 tokens fill, and are hashed
and published, at the usual rate.
"""

import argparse
import gc
import random
import resource
import time
from collections.abc import Iterable, Iterator
from typing import Any

from octavo.config import SchedulerConfig
from octavo.kv.manager import KVManager
from octavo.kv.spec import AttentionSpec, KVDtype, lay_out
from octavo.request.params import SamplingParams
from octavo.request.request import GenerateRequest
from octavo.scheduling.plan import StepPlan, StepResult
from octavo.scheduling.scheduler import Scheduler


def make_scheduler(num_blocks: int, max_model_len: int, *, num_groups: int = 1, **config: Any) -> Scheduler:
    """A scheduler over a pool of so many usable blocks."""
    specs = tuple(
        AttentionSpec(num_kv_heads=1, head_dim=64, window=w) for w in [None, *range(4096, 4096 + num_groups - 1)]
    )
    layout = lay_out(specs, num_blocks=num_blocks + 1, block_size=16, dtype=KVDtype.FP16)
    settings = SchedulerConfig(**{"max_num_batched_tokens": 8192, **config})
    manager = KVManager(layout, max_step_tokens=settings.max_num_batched_tokens, fingerprint="benchmark")
    return Scheduler(settings, manager, max_model_len)


def make_request(name: str, prompt: list[int], max_tokens: int) -> GenerateRequest:
    """A request with stop ids that never come."""
    params = SamplingParams(max_tokens=max_tokens, seed=0, stop_token_ids=(50000,))
    return GenerateRequest(request_id=name, prompt_token_ids=prompt, params=params, eos_token_ids=(50001, 50002))


def run(scheduler: Scheduler, arrivals: Iterable[list[GenerateRequest]] = ()) -> Iterator[tuple[StepPlan, float]]:
    """Steps until there is neither work nor an arrival; yields each plan with the seconds of schedule + update.

    Args:
        arrivals: what arrives before each step.
    """
    known: dict[str, int] = {}
    coming = iter(arrivals)
    while True:
        for request in next(coming, ()):
            scheduler.add(request, now_s=0.0)
        started = time.thread_time()
        plan = scheduler.schedule(0.0)
        planned = time.thread_time()
        if plan is None:
            return
        result = result_of(plan, known)
        executed = time.thread_time()
        outputs = scheduler.update(plan, result, 0.0)
        spent = planned - started + time.thread_time() - executed
        for output in outputs:
            if output.finish_reason is not None:
                del known[output.request_id]
        yield plan, spent


def result_of(plan: StepPlan, known: dict[str, int]) -> StepResult:
    """One arbitrary token for each request whose known tokens all ran.

    Args:
        known: request id -> number of known tokens; kept up to date.
    """
    known.update({new.request_id: len(new.token_ids) for new in plan.new_requests})
    tokens = []
    for request_id, computed, count in zip(
        plan.request_ids, plan.num_computed_tokens, plan.num_scheduled_tokens, strict=True
    ):
        is_through = computed + count == known[request_id]
        known[request_id] += is_through
        tokens.append((computed * 31 % 49152,) if is_through else ())
    return StepResult(step=plan.step, token_ids=tuple(tokens))


def summary(seconds: list[float]) -> str:
    """Median, 99th percentile and maximum."""
    times = sorted(1e3 * s for s in seconds)
    return f"median {times[len(times) // 2]:.3f} ms, p99 {times[int(len(times) * 0.99)]:.3f} ms, max {times[-1]:.3f} ms"


def decodes(args: argparse.Namespace) -> None:
    """Steps in which every request decodes one token. Prompts differ in length, so that blocks fill in all steps."""
    prompt, output = 512, args.steps + 64
    context = prompt + output + 1
    scheduler = make_scheduler(
        args.num_seqs * args.groups * -(-context // 16),
        context,
        num_groups=args.groups,
        max_num_seqs=args.num_seqs,
        max_num_batched_tokens=8192,
        admission_conservativeness=0.0,
    )
    for i in range(args.num_seqs):
        tokens = [(i * 7919 + p) % 49152 for p in range(prompt - i % 16)]
        scheduler.add(make_request(f"request-{i}", tokens, output), now_s=float(i))
    seconds = []
    for plan, spent in run(scheduler):
        if plan.num_tokens == args.num_seqs:
            seconds.append(spent)
        if len(seconds) == args.steps:
            break
    print(f"{args.num_seqs} decodes, {args.groups} group(s), {len(seconds)} steps: {summary(seconds)}")


def prefix(args: argparse.Namespace) -> None:
    """A queue of prompts of 1,020 to 1,400 tokens that begin with one of several system prompts of 1,000. Each request
    that starts is replaced by a new one, so the queue keeps its length."""
    rng = random.Random(0)

    def new(i: int) -> GenerateRequest:
        system = rng.randrange(args.prompts) * 1000
        own = [rng.randrange(49152) for _ in range(rng.randint(20, 400))]
        return make_request(f"request-{i}", [*range(system, system + 1000), *own], 20)

    scheduler = make_scheduler(
        20_000,
        4096,
        max_num_seqs=64,
        max_num_queued_reqs=10**6,
        scheduling_policy=args.policy,
        admission_conservativeness=0.0,
    )
    for i in range(args.waiting):
        scheduler.add(new(i), now_s=0.0)
    gc.collect()
    gc.freeze()
    seconds = []
    next_id = args.waiting
    for plan, spent in run(scheduler):
        seconds.append(spent)
        for _ in plan.new_requests:
            scheduler.add(new(next_id), now_s=0.0)
            next_id += 1
        if len(seconds) == args.steps:
            break
    counters = scheduler.counters
    print(
        f"{args.policy}, {args.waiting} waiting, {args.prompts} system prompt(s), {len(seconds)} steps: "
        f"{summary(seconds)}; hit rate {counters.cached_tokens / counters.prefix_queries:.2f}"
    )


def endurance(args: argparse.Namespace) -> None:
    """Requests of all kinds one after the other, 32 at a time, under each policy in turn; memory at ten points."""
    for policy in ("fcfs", "priority", "prefix"):
        rng = random.Random(1)
        scheduler = make_scheduler(
            40,
            256,
            max_num_seqs=32,
            max_num_queued_reqs=10**6,
            scheduling_policy=policy,
            fair_share=True,
            admission_conservativeness=0.0,
        )

        def arrivals(
            scheduler: Scheduler = scheduler, rng: random.Random = rng, total: int = args.requests // 3
        ) -> Iterator[list[GenerateRequest]]:
            made = 0
            while made < total:
                live = made - sum(scheduler.counters.finished.values())
                count = min(rng.randint(4, 12), total - made) if live < 96 else 0
                yield [_any_request(rng, made + i) for i in range(count)]
                made += count

        report_every = max(1, args.requests // 30)
        resident: list[int] = []
        steps = 0
        for plan, _ in run(scheduler, arrivals()):
            steps += 1
            finished = sum(scheduler.counters.finished.values())
            if finished // report_every > len(resident) - 1:
                resident.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
            del plan
        counters = scheduler.counters
        print(
            f"{policy}: {sum(counters.finished.values())} requests in {steps} steps, "
            f"{counters.preemptions} preemptions; largest resident size after each tenth: "
            f"{' '.join(map(str, resident))} MiB"
        )


def _any_request(rng: random.Random, i: int) -> GenerateRequest:
    prompt = [*range(rng.choice([0, 16, 48])), *[rng.randrange(1000) for _ in range(rng.randint(1, 20))]]
    request = make_request(f"request-{i}", prompt, rng.choice([1, 2, 4, 8]))
    tenant, priority = f"tenant-{rng.randrange(10**6)}", rng.randrange(3)
    return GenerateRequest(
        request_id=request.request_id,
        prompt_token_ids=prompt,
        params=request.params,
        tenant=tenant,
        priority=priority,
    )


def admission(args: argparse.Namespace) -> None:
    """A pool that holds a third of what may run at one time, answers of very different lengths, all present at the
    start; max_tokens says nothing about a quarter of them (they end at 1/8 of it)."""
    for conservativeness in (0.0, 0.3, 0.5, 0.7, 0.9, 1.0):
        for victim in ("last", "cheapest"):
            _admission(args.requests, conservativeness, victim)


def _admission(count: int, conservativeness: float, victim: str) -> None:
    rng = random.Random(2)
    scheduler = make_scheduler(
        600,
        2048,
        max_num_seqs=64,
        max_num_queued_reqs=10**6,
        max_num_batched_tokens=1024,
        admission_conservativeness=conservativeness,
        preemption_victim=victim,
    )
    for i in range(count):
        prompt = [rng.randrange(49152) for _ in range(rng.randint(16, 256))]
        max_tokens = rng.choice([32, 64, 128, 512])
        scheduler.add(make_request(f"request-{i}", prompt, max_tokens), now_s=0.0)
    running = [len(plan.request_ids) for plan, _ in run(scheduler)]
    counters = scheduler.counters
    print(
        f"conservativeness {conservativeness}, victim {victim}: {counters.steps} steps, "
        f"{sum(running) / len(running):.1f} running, {counters.preemptions} preemptions, "
        f"{100 * counters.recomputed_tokens / counters.computed_tokens:.1f} % of the tokens recomputed"
    )


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-gc", action="store_true", help="switch the cyclic garbage collector off")
    commands = parser.add_subparsers(required=True)
    options: dict[Any, dict[str, Any]] = {
        decodes: {"--num-seqs": 256, "--steps": 400, "--groups": 1},
        prefix: {"--waiting": 10_000, "--prompts": 20, "--steps": 400, "--policy": "prefix"},
        endurance: {"--requests": 1_000_000},
        admission: {"--requests": 600},
    }
    for function, defaults in options.items():
        command = commands.add_parser(function.__name__, help=function.__doc__)
        command.set_defaults(function=function)
        for flag, default in defaults.items():
            command.add_argument(flag, type=type(default), default=default)
    args = parser.parse_args()
    gc.freeze()
    if args.no_gc:
        gc.disable()
    args.function(args)


if __name__ == "__main__":
    main()
