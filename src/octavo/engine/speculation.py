"""What speculation an engine does: who guesses, and how much is tried."""

from collections.abc import Callable

from octavo.config import SchedulerConfig, SpeculationConfig
from octavo.decoding.speculation import build
from octavo.decoding.speculation.build import Surroundings
from octavo.decoding.speculation.tokens_only import TokensOnly
from octavo.errors import ConfigError
from octavo.execution.protocols import Proposer
from octavo.scheduling.draft_counts import DraftCounts, FixedDraftCounts

OFF = "off"
MOST_DRAFTS_PER_STEP = 64
"""Over all requests. Far beyond where a row more costs as much as a step; each takes a row of logits."""


def _of_tokens(name: str) -> Callable[[Surroundings], Proposer]:
    return lambda around: TokensOnly(build.proposer_named(name, around))


PROPOSERS: dict[str, Callable[[Surroundings], Proposer]] = {name: _of_tokens(name) for name in build.PROPOSERS}
"""Name, as `speculation` gives it -> who guesses."""


def require_known(config: SpeculationConfig) -> None:
    """
    Raises:
        ConfigError: there is nobody of that name to guess.
    """
    if config.speculation != OFF and config.speculation not in PROPOSERS:
        known = ", ".join((OFF, *sorted(PROPOSERS)))
        raise ConfigError("speculation", config.speculation, f"must be one of {known}")


def proposer_of(config: SpeculationConfig, around: Surroundings) -> Proposer | None:
    """Who guesses, of a known name; None: nobody."""
    return None if config.speculation == OFF else PROPOSERS[config.speculation](around)


def draft_counts_of(config: SpeculationConfig, scheduler: SchedulerConfig) -> DraftCounts | None:
    """Who decides how much is tried; None: nothing is. `scheduler` has the size of a step filled in."""
    if config.speculation == OFF:
        return None
    most = min(config.num_speculative_tokens * scheduler.max_num_seqs, MOST_DRAFTS_PER_STEP)
    return FixedDraftCounts(config.num_speculative_tokens, min(most, scheduler.max_num_batched_tokens))
