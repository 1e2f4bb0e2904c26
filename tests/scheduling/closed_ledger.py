"""Whether the parts of a request's ledger add up to the whole."""

import pytest

from octavo.request.account import MAX_BLOCK_SAMPLES, MAX_CHUNK_RUNS, WAITING_PHASES, Account
from octavo.request.outputs import FinishReason, RequestStats

ENDED_BY_TOKENS = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.REPETITION)


def check_closed(stats: RequestStats, reason: FinishReason | None, *, within_s: float = 1e-9) -> None:
    """Asserts that it does: seconds within `within_s`, tokens exactly.

    Args:
        reason: why it ended.
    """
    account = stats.account
    assert account is not None and stats.finished_s is not None
    assert sum(account.phases_s.values()) == pytest.approx(stats.finished_s - stats.arrival_s, abs=within_s)
    if stats.first_scheduled_s is None or stats.arrival_s <= stats.first_scheduled_s:  # some tests name the arrival
        assert all(seconds >= 0 for seconds in account.phases_s.values())
    for phase in WAITING_PHASES:
        waited_s = account.phases_s.get(phase, 0.0)
        assert sum(account.waits_s.get(phase, {}).values()) == pytest.approx(waited_s, abs=within_s), phase
    _check_steps(stats, account)
    if reason in ENDED_BY_TOKENS and stats.num_output_tokens:
        held = stats.num_prompt_tokens + stats.num_output_tokens - 1 + stats.num_overrun_tokens
        assert held == stats.num_cached_tokens + stats.num_spared_tokens + stats.num_fresh_tokens
    assert sum(stats.num_loaded_tokens.values()) <= stats.num_cached_tokens <= stats.num_prompt_tokens


def _check_steps(stats: RequestStats, account: Account) -> None:
    works = account.work.values()
    assert sum(work.num_steps for work in works) == stats.num_steps == sum(run.num_steps for run in account.chunks)
    num_known = stats.num_computed_tokens - stats.num_draft_tokens
    assert sum(run.num_tokens for run in account.chunks) == num_known
    assert all(run.size * run.num_steps == run.num_tokens for run in account.chunks if run.size)
    assert len(account.chunks) <= MAX_CHUNK_RUNS and len(account.blocks) <= MAX_BLOCK_SAMPLES + 1
    assert all(
        earlier.last_step < later.first_step or 0 in (earlier.size, later.size)
        for earlier, later in zip(account.chunks, account.chunks[1:], strict=False)
    )
    assert max((blocks for _, blocks in account.blocks), default=0) <= stats.max_blocks
    assert (account.block_seconds > 0) <= (stats.max_blocks > 0)
