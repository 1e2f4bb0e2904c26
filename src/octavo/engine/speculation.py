"""What speculation an engine does: who guesses, and how much is tried."""

from collections.abc import Callable
from dataclasses import replace

from octavo.config import EngineConfig, SchedulerConfig, SpeculationConfig
from octavo.decoding.speculation import build
from octavo.decoding.speculation.build import Surroundings
from octavo.decoding.speculation.tokens_only import TokensOnly
from octavo.engine.second_model import SECOND_MODELS, kind_and_name
from octavo.errors import ConfigError
from octavo.execution.protocols import Proposer
from octavo.scheduling.adaptive_draft_counts import AdaptiveDraftCounts
from octavo.scheduling.draft_counts import DraftCounts, FixedDraftCounts

OFF, AUTO, BEST = "off", "auto", "suffix"
"""Nobody guesses; whoever does best here; who that is if anybody."""
MOST_DRAFTS = 16
"""Of one request in a step, where their number is chosen by what they are worth."""
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
    kind, name = kind_and_name(config)
    names = (OFF, AUTO, *sorted(PROPOSERS))
    if (kind in SECOND_MODELS and name) or config.speculation in names:
        return
    known = ", ".join((*names, *[f"{kind}:MODEL" for kind in sorted(SECOND_MODELS)]))
    raise ConfigError("speculation", config.speculation, f"must be one of {known}")


def readings(config: EngineConfig) -> tuple[EngineConfig, ...]:
    """What may be meant where `auto` leaves it open who guesses, the best first: that which has the memory that it
    takes is. A number of drafts means that somebody does. Beside the reference executor, which is there to be compared
    with and not for speed, nobody does unasked: its bits depend on what runs together, and drafts on the clock."""
    said = config.speculation
    if said.speculation != AUTO:
        return (config,)
    if said.num_speculative_tokens is not None:
        names: tuple[str, ...] = (BEST,)
    else:
        names = (BEST, OFF) if config.execution.executor == "native" else (OFF,)
    return tuple(replace(config, speculation=replace(said, speculation=name)) for name in names)


def proposer_of(config: SpeculationConfig, around: Surroundings) -> Proposer | None:
    """Who guesses, of a name that leaves nothing open, if that is no model; None: nobody."""
    factory = PROPOSERS.get(config.speculation)
    return None if factory is None else factory(around)


def draft_counts_of(config: SpeculationConfig, scheduler: SchedulerConfig) -> DraftCounts | None:
    """Who decides how much is tried; None: nothing is. It is known who guesses; `scheduler` has the size of a step
    filled in."""
    if config.speculation == OFF:
        return None
    fixed = config.num_speculative_tokens
    most = (MOST_DRAFTS if fixed is None else fixed) * scheduler.max_num_seqs
    most = min(most, MOST_DRAFTS_PER_STEP, scheduler.max_num_batched_tokens)
    return AdaptiveDraftCounts(MOST_DRAFTS, most) if fixed is None else FixedDraftCounts(fixed, most)
