"""What the ledgers of requests cost: the same work with and without them, in turns.

    python benchmarks/ledger_overhead.py steps                       schedule + update of steps in which all decode
    python benchmarks/ledger_overhead.py engine -m smollm2-135m      processor time of a whole engine, real tokens

Both interleave rounds with `request_ledger` on and off and give the median of their ratios, or differences, round by
round. `steps` has no model: its microseconds stand against steps that take milliseconds.
"""

import argparse
import gc
import time
from statistics import median

from pairing import estimate
from scheduler import make_request, make_scheduler, run

from octavo import LLM, SamplingParams

PROMPT_TOKENS = 64


def step_us(num_requests: int, num_steps: int, *, ledger: bool) -> float:
    """Median processor time of this thread for the scheduler's part of a step of so many decoding requests."""
    length = PROMPT_TOKENS + num_steps
    scheduler = make_scheduler(
        num_requests * (length // 16 + 2), length + 16, max_num_seqs=num_requests, request_ledger=ledger
    )
    for i in range(num_requests):
        prompt = [1 + (i * 7919 + j) % 40000 for j in range(PROMPT_TOKENS)]
        scheduler.add(make_request(f"r{i}", prompt, num_steps), now_s=0.0)
    gc.collect()
    gc.disable()
    spent = [seconds for plan, seconds in run(scheduler) if plan.num_tokens == num_requests]
    gc.enable()
    return median(spent) * 1e6


def compare_steps(rounds: int, num_steps: int) -> None:
    """A table of microseconds."""
    print("| requests | without | with | more, per step | 90 % interval |\n|---|---|---|---|---|")
    for num_requests in (1, 16, 64, 256):
        pairs = []
        for turn in range(rounds):
            order = (True, False) if turn % 2 else (False, True)
            times = {ledger: step_us(num_requests, num_steps, ledger=ledger) for ledger in order}
            pairs.append((times[False], times[True]))
        more = estimate([with_it - without for without, with_it in pairs])
        columns = (median(pair[0] for pair in pairs), median(pair[1] for pair in pairs), more.median)
        shown = " | ".join(f"{column:.1f} us" for column in columns)
        print(f"| {num_requests} | {shown} | {more.low:.1f} to {more.high:.1f} us |")


def engine_cpu_s(llm: LLM, prompts: list[list[int]], params: SamplingParams) -> float:
    """Processor time of this process for these answers."""
    llm.reset_prefix_cache()
    begin = time.process_time()
    llm.generate(prompts, params)
    return time.process_time() - begin


def compare_engines(model: str, rounds: int, num_requests: int, output_tokens: int) -> None:
    """One line: the ratio of processor times."""
    params = SamplingParams(temperature=0, max_tokens=output_tokens, ignore_eos=True)
    prompts = [[1 + (i * 7919 + j) % 40000 for j in range(PROMPT_TOKENS)] for i in range(num_requests)]
    settings = {"threads": 1, "max_model_len": 1024, "max_num_seqs": num_requests, "speculation": "off"}
    engines = {ledger: LLM(model, request_ledger=ledger, **settings) for ledger in (True, False)}
    for llm in engines.values():
        engine_cpu_s(llm, prompts, params)
    ratios = []
    for turn in range(rounds):
        order = (True, False) if turn % 2 else (False, True)
        spent = {ledger: engine_cpu_s(engines[ledger], prompts, params) for ledger in order}
        ratios.append(spent[True] / spent[False])
    found = estimate(ratios)
    print(f"{model}, {num_requests} requests of {PROMPT_TOKENS} + {output_tokens} tokens, one thread: processor time")
    print(f"with ledgers {found.median:.4f} times that without ({found.low:.4f} to {found.high:.4f}, {rounds} pairs)")
    for llm in engines.values():
        llm.close()


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("steps", "engine"))
    parser.add_argument("-m", "--model", default="smollm2-135m")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=200, help="decoding steps of a round of `steps`")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--output-tokens", type=int, default=64)
    options = parser.parse_args()
    if options.what == "steps":
        compare_steps(options.rounds, options.steps)
    else:
        compare_engines(options.model, options.rounds, options.requests, options.output_tokens)


if __name__ == "__main__":
    main()
