"""Time of schedule + update per step at a number of running decodes, without any execution.

    python benchmarks/scheduler.py --num-seqs 256 --steps 400

Prints the median, the 99th percentile and the largest sum of both, in milliseconds of processor time, over steps in
which every request decodes one token. Blocks fill (and are hashed and published) at the usual rate: a sixteenth of the
requests per step for blocks of 16 tokens.
"""

import argparse
import gc
import time

from octavo.config import SchedulerConfig
from octavo.kv.manager import KVManager
from octavo.kv.spec import AttentionSpec, KVDtype, lay_out
from octavo.request.params import SamplingParams
from octavo.request.request import GenerateRequest
from octavo.scheduling.plan import StepPlan, StepResult
from octavo.scheduling.scheduler import Scheduler


def make_scheduler(num_seqs: int, context: int, num_groups: int) -> Scheduler:
    """A scheduler whose pool holds `num_seqs` requests of `context` tokens."""
    windows = [None, *[128] * (num_groups - 1)]
    specs = tuple(AttentionSpec(num_kv_heads=1, head_dim=64, window=window) for window in windows)
    num_blocks = 1 + num_seqs * num_groups * -(-context // 16)
    layout = lay_out(specs, num_blocks=num_blocks, block_size=16, dtype=KVDtype.FP16)
    config = SchedulerConfig(max_num_seqs=num_seqs, max_num_batched_tokens=8192)
    return Scheduler(config, KVManager(layout, fingerprint="benchmark"), max_model_len=context)


def add_requests(scheduler: Scheduler, num_seqs: int, prompt: int, output: int) -> None:
    """Different prompts of slightly different lengths, so that their blocks do not all fill in one step."""
    for i in range(num_seqs):
        scheduler.add(
            GenerateRequest(
                request_id=f"request-{i}",
                prompt_token_ids=[(i * 7919 + p) % 49152 for p in range(prompt - i % 16)],
                params=SamplingParams(max_tokens=output, seed=i, stop_token_ids=(50000,)),
                eos_token_ids=(50001, 50002),
            ),
            now_s=float(i),
        )


def result_of(plan: StepPlan, known: dict[str, int]) -> StepResult:
    """One arbitrary token for each request whose known tokens all ran."""
    tokens = []
    for request_id, computed, count in zip(
        plan.request_ids, plan.num_computed_tokens, plan.num_scheduled_tokens, strict=True
    ):
        done = computed + count == known[request_id]
        known[request_id] += done
        tokens.append((computed * 31 % 49152,) if done else ())
    return StepResult(step=plan.step, token_ids=tuple(tokens))


def measure(num_seqs: int, steps: int, num_groups: int) -> list[float]:
    """Seconds of schedule + update for each step in which all requests decode."""
    prompt, output = 512, steps + 64
    scheduler = make_scheduler(num_seqs, prompt + output + 1, num_groups)
    add_requests(scheduler, num_seqs, prompt, output)
    known = {f"request-{i}": prompt - i % 16 for i in range(num_seqs)}
    seconds: list[float] = []
    while scheduler.has_work and len(seconds) < steps:
        start = time.process_time()
        plan = scheduler.schedule(start)
        planned = time.process_time()
        assert plan is not None
        result = result_of(plan, known)
        executed = time.process_time()
        scheduler.update(plan, result, executed)
        spent = planned - start + time.process_time() - executed
        if plan.num_tokens == num_seqs:
            seconds.append(spent)
    return seconds


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--num-seqs", type=int, default=256, help="running requests")
    parser.add_argument("--steps", type=int, default=400, help="decode steps measured")
    parser.add_argument("--groups", type=int, default=1, help="cache groups: one of full attention, others windowed")
    parser.add_argument("--no-gc", action="store_true", help="switch the cyclic garbage collector off")
    args = parser.parse_args()
    gc.freeze()
    if args.no_gc:
        gc.disable()
    times = sorted(1e3 * s for s in measure(args.num_seqs, args.steps, args.groups))
    print(
        f"{args.num_seqs} decodes, {args.groups} group(s), {len(times)} steps: schedule + update "
        f"median {times[len(times) // 2]:.3f} ms, p99 {times[int(len(times) * 0.99)]:.3f} ms, max {times[-1]:.3f} ms"
    )


if __name__ == "__main__":
    main()
