"""A ledger as people and programs read it: plain data, in seconds from the request's arrival, bytes and counts."""

from typing import Any

from octavo.request.account import Account, ChunkRun, Phase, WorkDone
from octavo.request.ledger import ChoiceLedger, RequestLedger
from octavo.request.outputs import RequestStats

NO_BOUNDS = "this machine has not been measured: `octavo ledger --hardware cpu` does so once, before the engine starts"
_PHASES_OF_CORE = frozenset(str(phase) for phase in Phase)
NO_ACCOUNT = "request_ledger is off"


def request_form(ledger: RequestLedger, wall_s: float) -> dict[str, Any]:
    """A request of the API. No clock of the engine leaves it.

    Args:
        wall_s: Unix seconds, at `ledger.now_s`.
    """
    arrival_s = min(choice.stats.arrival_s for choice in ledger.choices)
    live = any(choice.finish_reason is None for choice in ledger.choices)
    return {
        "id": ledger.request_id,
        "object": "request",
        "x_request_id": ledger.alias or None,
        "status": "live" if live else "finished",
        "arrived_at": wall_s - (ledger.now_s - arrival_s),
        "age_s": ledger.now_s - arrival_s,
        "priority": ledger.priority,
        "choices": [choice_form(index, choice, arrival_s) for index, choice in enumerate(ledger.choices)],
    }


def choice_form(index: int, choice: ChoiceLedger, arrival_s: float) -> dict[str, Any]:
    """One sequence.

    Args:
        arrival_s: from when seconds count.
    """
    stats = choice.stats

    def since(moment_s: float | None) -> float | None:
        return None if moment_s is None else moment_s - arrival_s

    return {
        "index": index,
        "state": choice.state,
        "finish_reason": None if choice.finish_reason is None else str(choice.finish_reason),
        "first_scheduled_s": since(stats.first_scheduled_s),
        "first_token_s": since(stats.first_token_s),
        "finished_s": since(stats.finished_s),
        "preempted_s": [moment_s - arrival_s for moment_s in stats.preempted_s],
        "e2e_s": stats.e2e_s,
        **_tokens(stats),
        "steps": stats.num_steps,
        "max_blocks": stats.max_blocks,
        "speculation": _speculation(stats) if stats.num_drafts else None,
        "pinned_tokens": stats.num_pinned_tokens,
        "pin_problem": stats.pin_problem or None,
        **_account(stats, arrival_s),
    }


def _tokens(stats: RequestStats) -> dict[str, Any]:
    """prompt + output - 1 + overrun = cached + spared + fresh, of a sequence that has ended by itself."""
    loaded = stats.num_loaded_tokens
    return {
        "prompt_tokens": stats.num_prompt_tokens,
        "output_tokens": stats.num_output_tokens,
        "cached_tokens": stats.num_cached_tokens,
        "cached_tokens_by_tier": {"device": stats.num_cached_tokens - sum(loaded.values()), **loaded},
        "loaded_tokens": loaded,
        "computed_tokens": stats.num_computed_tokens,
        "fresh_tokens": stats.num_fresh_tokens,
        "recomputed_tokens": stats.num_recomputed_tokens,
        "resumed_cached_tokens": stats.num_resumed_cached_tokens,
        "spared_tokens": stats.num_spared_tokens,
        "overrun_tokens": stats.num_overrun_tokens,
        "preemptions": stats.num_preemptions,
    }


def _speculation(stats: RequestStats) -> dict[str, Any]:
    """What came of the drafts of a choice."""
    return {
        "drafts": stats.num_drafts,
        "draft_tokens": stats.num_draft_tokens,
        "accepted_tokens": stats.num_accepted_draft_tokens,
        "accepted_tokens_per_pos": stats.num_accepted_by_position,
        "mean_acceptance_length": stats.mean_acceptance_length,
        "saved_steps": stats.num_saved_steps,
        "wasted_tokens": stats.num_wasted_draft_tokens,
    }


def _account(stats: RequestStats, arrival_s: float) -> dict[str, Any]:
    """Where the time went; what is not known is None, and `unknown` says why."""
    account = stats.account
    if account is None:
        return {"phases": None, "chunks": None, "blocks": None, "unknown": [NO_ACCOUNT]}
    bounded = all(work.bound_s is not None for work in account.work.values())
    return {
        "phases": [_phase(name, seconds, account) for name, seconds in stats.phases_s.items()],
        "chunks": [_chunk(run) for run in account.chunks],
        "blocks": {
            "most": stats.max_blocks,
            "block_seconds": account.block_seconds,
            "over_time": [[moment_s - arrival_s, count] for moment_s, count in account.blocks],
        },
        "unknown": [] if bounded else [NO_BOUNDS],
    }


def _phase(name: str, seconds: float, account: Account) -> dict[str, Any]:
    """A phase of the core knows what was waited for, or what ran."""
    if name not in _PHASES_OF_CORE:
        return {"phase": name, "seconds": seconds, "waits": None, "work": None}
    phase = Phase(name)
    waits, work = account.waits_s.get(phase), account.work.get(phase)
    return {
        "phase": name,
        "seconds": seconds,
        "waits": None if waits is None else {str(reason): spent for reason, spent in waits.items()},
        "work": None if work is None else _work(work),
    }


def _work(work: WorkDone) -> dict[str, Any]:
    return {
        "steps": work.num_steps,
        "tokens": work.num_tokens,
        "sampled_tokens": work.num_sampled,
        "share_of_steps": work.share,
        "steps_s": work.steps_s,
        "share_s": work.share_s,
        "flops": work.flops,
        "weight_bytes": work.weight_bytes,
        "kv_bytes": work.kv_bytes,
        "bound_s": work.bound_s,
        "bound_by": work.bound_by or None,
    }


def _chunk(run: ChunkRun) -> dict[str, Any]:
    return {
        "phase": str(run.phase),
        "start": run.start,
        "size": run.size or None,
        "steps": run.num_steps,
        "tokens": run.num_tokens,
        "first_step": run.first_step,
        "last_step": run.last_step,
    }
