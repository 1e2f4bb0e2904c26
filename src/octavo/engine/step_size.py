"""How large a step may be where the configuration leaves it open: its token budget and its most sequences."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from octavo.config import SchedulerConfig
from octavo.model.program import Linear, Program

STEP_S = 0.5
"""A step full of prompt tokens should last about so long: the others wait for it with their next token, but smaller
chunks read the weights more often."""
PREFILL_OPS_PER_S = {"portable": 10e9, "avx2": 180e9, "avx512": 300e9, "amx": 330e9}
"""Per thread and kernel path, whole prefill steps on a current server core, rounded (docs/performance.md). The order of
magnitude is what counts."""
GRANULE = 128
"""The executor works on blocks of so many tokens: fewer would cost speed."""
MOST_TOKENS = 2048
SEQS_PER_THREAD = 32
LEAST_SEQS, MOST_SEQS = 64, 256


def with_step_size(config: SchedulerConfig, programs: Sequence[Program], threads: int, isa: str) -> SchedulerConfig:
    """Fills in `max_num_batched_tokens` and `max_num_seqs` where they are 0, from the machine and the models that run
    all tokens of a step."""
    return replace(
        config,
        max_num_batched_tokens=config.max_num_batched_tokens or _token_budget(programs, threads, isa),
        max_num_seqs=config.max_num_seqs or min(max(LEAST_SEQS, SEQS_PER_THREAD * threads), MOST_SEQS),
    )


def _token_budget(programs: Sequence[Program], threads: int, isa: str) -> int:
    linears = [program.weights[op.weight] for program in programs for op in program.ops if isinstance(op, Linear)]
    ops_per_token = 2 * sum(prod(weight.shape) for weight in linears)
    tokens = STEP_S * threads * PREFILL_OPS_PER_S[isa] / ops_per_token
    return min(max(1, int(tokens / GRANULE)) * GRANULE, MOST_TOKENS)
