"""A request's ledger as text: where its time went, what it waited for, what ran for it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Form = Mapping[str, Any]
"""As `octavo.request.ledger_form` makes it, and /v1/requests/{id} sends it."""

PHASES = {
    "prepare": "read, rendered, tokenised",
    "submit": "on its way into the engine, between two steps",
    "queue": "waiting to run",
    "prefill": "to the first token",
    "decode": "to the last token",
    "preempted": "its blocks were taken; waiting to come back",
    "recompute": "running again what was lost",
    "stalled": "steps were planned without it",
    "deliver": "on its way out",
}
WAITS = {
    "step": "the step that ran",
    "order": "those before it",
    "slots": "a place among the running (max_num_seqs)",
    "key_limit": "a place for its key (max_running_per_key)",
    "budget": "tokens of a step (max_num_batched_tokens)",
    "blocks": "KV blocks",
    "forecast": "KV blocks that last (admission_conservativeness)",
    "grammar": "its grammar",
    "kv": "KV from another tier",
    "paused": "the end of a pause",
}


def explain(form: Form) -> Iterator[str]:
    """The lines."""
    name = f" ({form['x_request_id']})" if form["x_request_id"] else ""
    yield f"{form['id']}{name}: {form['status']}, priority {form['priority']}"
    for choice in form["choices"]:
        yield ""
        yield from _choice(choice)


def _choice(choice: Form) -> Iterator[str]:
    end = choice["finish_reason"] or choice["state"]
    yield (
        f"choice {choice['index']}: {end}; {choice['prompt_tokens']:,} prompt and {choice['output_tokens']:,} output "
        f"tokens in {seconds(choice['e2e_s'])}"
    )
    if choice["phases"] is not None:
        yield from _phases(choice["phases"], choice["e2e_s"])
        yield from _chunks(choice["chunks"])
    yield from _tokens(choice)
    if choice["phases"] is not None:
        yield from _work(choice["phases"])
        yield from _blocks(choice["blocks"])
    yield from (f"  unknown    {reason}" for reason in choice["unknown"])


def _phases(phases: Sequence[Form], e2e_s: float) -> Iterator[str]:
    for phase in phases:
        share = phase["seconds"] / e2e_s if e2e_s else 0.0
        yield f"  {phase['phase']:<10} {seconds(phase['seconds']):>10} {share:>7.1%}   {PHASES[phase['phase']]}"
        for reason, spent in (phase["waits"] or {}).items():
            yield f"             {seconds(spent):>10}           for {WAITS[reason]}"
    yield f"  {'sum':<10} {seconds(sum(phase['seconds'] for phase in phases)):>10}"


def _chunks(chunks: Sequence[Form]) -> Iterator[str]:
    for label, chunk in zip(["steps", *[""] * len(chunks)], chunks, strict=False):
        first, last = chunk["first_step"], chunk["last_step"]
        where = f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"
        size = "different sizes" if chunk["size"] is None else f"{count(chunk['size'], 'token')} each"
        amount = count(chunk["tokens"], "token") if chunk["steps"] == 1 else f"{chunk['steps']:,} steps, {size}"
        yield f"  {label:<10} {chunk['phase']:<10} {where}: {amount}, from token {chunk['start']:,} on"


def _tokens(choice: Form) -> Iterator[str]:
    tiers = ", ".join(f"{number:,} {tier}" for tier, number in choice["cached_tokens_by_tier"].items() if number)
    yield (
        f"  tokens     {choice['computed_tokens']:,} run; {choice['cached_tokens']:,} of the prompt cached"
        + (f" ({tiers})" if tiers else "")
    )
    if choice["preemptions"]:
        yield (
            f"             {count(choice['preemptions'], 'preemption')}: {choice['recomputed_tokens']:,} run again, "
            f"{choice['resumed_cached_tokens']:,} found again in the cache"
        )
    drafts = choice["speculation"]
    if drafts is not None:
        yield (
            f"             {count(drafts['draft_tokens'], 'draft token')} tried, {drafts['accepted_tokens']:,} right, "
            f"{count(drafts['saved_steps'], 'step')} saved"
        )
    if choice["overrun_tokens"]:
        yield f"             {choice['overrun_tokens']:,} run behind the end, which nobody foresaw"


def _work(phases: Sequence[Form]) -> Iterator[str]:
    for phase in phases:
        work = phase["work"]
        if work is None:
            continue
        steps = f"{count(work['steps'], 'step')} of {seconds(work['steps_s'])}, {count(work['tokens'], 'row')}"
        yield f"  {phase['phase']:<10} {seconds(work['share_s']):>10}           its part of {steps}"
        if work["flops"] is not None:
            read = f"{amount(work['weight_bytes'], 'B')} of weights, {amount(work['kv_bytes'], 'B')} of KV"
            yield f"                                  {amount(work['flops'], 'FLOP')}, {read}"
        if work["bound_s"]:
            times = f"the phase took {phase['seconds'] / work['bound_s']:.1f} times that"
            yield f"             {seconds(work['bound_s']):>10}           at least, by {work['bound_by']}; {times}"


def _blocks(blocks: Form) -> Iterator[str]:
    held = " ".join(f"{number}@{moment_s:.2f}s" for moment_s, number in blocks["over_time"][:8])
    more = " ..." if len(blocks["over_time"]) > 8 else ""
    yield f"  blocks     {blocks['most']:,} at most, {blocks['block_seconds']:,.1f} block seconds: {held}{more}"


def seconds(number: float) -> str:
    """As people read it."""
    if number >= 1:
        return f"{number:.2f} s"
    return f"{number * 1e3:.1f} ms"


def count(number: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def amount(number: float, unit: str) -> str:
    """With a power of 1000."""
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {prefix}{unit}"
    return f"{number:.0f} {unit}"
