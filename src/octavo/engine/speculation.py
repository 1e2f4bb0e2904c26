"""What speculation an engine does: who guesses, and how much is tried."""

from collections.abc import Callable

from octavo.config import SchedulerConfig, SpeculationConfig
from octavo.errors import ConfigError
from octavo.execution.protocols import Proposer
from octavo.scheduling.draft_counts import DraftCounts, FixedDraftCounts

OFF = "off"
MOST_DRAFTS_PER_STEP = 64
"""Over all requests. Far beyond where a row more costs as much as a step; each takes a row of logits."""

PROPOSERS: dict[str, Callable[[], Proposer]] = {}
"""Name, as `speculation` gives it -> who guesses."""


def proposer_of(config: SpeculationConfig) -> Proposer | None:
    """Who guesses; None: nobody.

    Raises:
        ConfigError: there is nobody of that name.
    """
    if config.speculation == OFF:
        return None
    factory = PROPOSERS.get(config.speculation)
    if factory is None:
        raise ConfigError("speculation", config.speculation, f"must be one of {', '.join((OFF, *sorted(PROPOSERS)))}")
    return factory()


def draft_counts_of(config: SpeculationConfig, scheduler: SchedulerConfig) -> DraftCounts | None:
    """Who decides how much is tried; None: nothing is. `scheduler` has the size of a step filled in."""
    if config.speculation == OFF:
        return None
    most = min(config.num_speculative_tokens * scheduler.max_num_seqs, MOST_DRAFTS_PER_STEP)
    return FixedDraftCounts(config.num_speculative_tokens, min(most, scheduler.max_num_batched_tokens))
