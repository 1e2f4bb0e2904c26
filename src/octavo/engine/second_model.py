"""Models that guess what the first one will say, as `--speculation KIND:MODEL` names them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from octavo.config import EngineConfig, SpeculationConfig
from octavo.decoding.speculation.draft_model import DraftModelProposer
from octavo.decoding.speculation.eagle import EagleProposer
from octavo.engine.executors import Loaded, SecondLoaded
from octavo.engine.fingerprint import weights_name
from octavo.engine.grammars import load_tokenizer
from octavo.errors import ConfigError, ModelNotFoundError
from octavo.execution.draft_head import INTEGER_TENSORS, load_head
from octavo.execution.loader import Checkpoint, open_checkpoint
from octavo.execution.loader.open import open_with_integers
from octavo.execution.protocols import DraftExecutor, Proposer
from octavo.execution.weights import load_model, weight_bytes
from octavo.hub.files import ModelFiles
from octavo.model.dataflow import most_positions
from octavo.model.draft_head import HIDDEN
from octavo.model.program import Program

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FirstModel:
    """The model that is guessed for."""

    config: EngineConfig
    files: ModelFiles
    loaded: Loaded = field(repr=False)
    vocab_size: int
    """Ids that may be sampled are less."""


@dataclass(frozen=True)
class SecondModel:
    """A model that guesses, loaded and not yet built."""

    loaded: SecondLoaded = field(repr=False)
    first: Loaded = field(repr=False)
    """The first model as it must be run for it."""
    weights_name: str
    """See `fingerprint.weights_name`."""
    proposer: Callable[[DraftExecutor], Proposer]
    """Makes the one who runs it."""
    checkpoint: Checkpoint = field(repr=False)
    """Its files."""

    @property
    def num_weight_bytes(self) -> int:
        """Of its own weights."""
        own = {name: w for name, w in self.loaded.weights.items() if name not in self.loaded.borrowed}
        return sum(weight_bytes(own).values())


def kind_and_name(config: SpeculationConfig) -> tuple[str, str]:
    """`KIND:MODEL` in its two parts; the second is empty for names of proposers that are no models."""
    return config.speculation.partition(":")[0], config.model_name


def load_second(first: FirstModel) -> SecondModel | None:
    """The model that `speculation` names; None if it names none.

    Raises:
        ModelError: it cannot be had or run.
        ConfigError: nobody knows it, or it does not go with the first.
    """
    kind, name = kind_and_name(first.config.speculation)
    loader = SECOND_MODELS.get(kind)
    try:
        return None if loader is None else loader(name, first)
    except ModelNotFoundError as error:
        raise ConfigError("speculation", first.config.speculation.speculation, str(error)) from None


def resolve_second(name: str) -> ModelFiles:
    """The files of a model by its name, as those of the first are found."""
    from octavo.hub import resolve  # noqa: PLC0415  a core whose model is found has no other use for it

    return resolve(name)


def load_draft_model(name: str, first: FirstModel) -> SecondModel:
    """A whole model of the same tokens."""
    files = resolve_second(name)
    checkpoint = open_checkpoint(files.files)
    program, weights = load_model(checkpoint, first.config.model.max_model_len)
    _require_same_tokens(name, files, program.vocab_size, first)
    _check_length(name, program, first)
    lasting = first.config.cache.kv_disk_path is not None
    return SecondModel(
        loaded=SecondLoaded(program, weights, borrowed={}),
        first=first.loaded,
        weights_name=weights_name(files, lasting=lasting),
        proposer=lambda executor: DraftModelProposer(executor, first.vocab_size),
        checkpoint=checkpoint,
    )


def load_eagle_head(name: str, first: FirstModel) -> SecondModel:
    """A draft head that was made for the first model."""
    files = resolve_second(name)
    checkpoint = open_with_integers(files.files, INTEGER_TENSORS)
    head = load_head(checkpoint, first.loaded.program, first.loaded.weights)
    _check_length(name, head.program, first)
    width = head.program.buffers[head.program.inputs[HIDDEN]].width
    lasting = first.config.cache.kv_disk_path is not None
    return SecondModel(
        loaded=SecondLoaded(head.program, head.weights, borrowed=head.borrowed),
        first=Loaded(head.target, head.target_weights),
        weights_name=weights_name(files, lasting=lasting),
        proposer=lambda executor: EagleProposer(executor, head.token_ids, width=width, vocab_size=first.vocab_size),
        checkpoint=checkpoint,
    )


SECOND_MODELS: Mapping[str, Callable[[str, FirstModel], SecondModel]] = {
    "draft": load_draft_model,
    "eagle": load_eagle_head,
}
"""Kind -> how a model of that kind is loaded."""


def _check_length(name: str, program: Program, first: FirstModel) -> None:
    """
    Raises:
        ConfigError: the second model has no rows for positions that the first may come to.
    """
    max_model_len, bound = first.config.model.max_model_len, most_positions(program)
    longest = max_model_len or first.loaded.program.max_positions
    if bound is not None and longest > bound:
        problem = f"{name} looks positions up in a table of {bound}: ask for at most that, or draft with another model"
        raise ConfigError("max_model_len", longest, problem)
    if max_model_len is not None and max_model_len > program.max_positions:
        log.warning(
            "%s was made for %d positions: behind these its drafts will be of little use", name, program.max_positions
        )


def _require_same_tokens(name: str, files: ModelFiles, vocab_size: int, first: FirstModel) -> None:
    """Tokenizer files list more or less of what pads a vocabulary or was added to it later: what both know must be the
    same, and the second model must have a row for every token of the first.

    Raises:
        ConfigError: a token of the first model is another in the second, or none.
    """
    value, models = first.config.speculation.speculation, f"{name} and {first.files.name}"
    advice = "give a draft model with the tokenizer of the model"
    if vocab_size < first.vocab_size:
        problem = f"{name} has {vocab_size} tokens, {first.files.name} {first.vocab_size}; {advice}"
        raise ConfigError("speculation", value, problem)
    if first.config.model.skip_tokenizer_init:
        log.warning("without tokenizers nobody knows whether %s have the same tokens", models)
        return
    ours, theirs = load_tokenizer(first.files), load_tokenizer(files)
    for token_id in range(min(first.vocab_size, ours.vocab_size, theirs.vocab_size)):
        known, wanted = theirs.token_bytes(token_id), ours.token_bytes(token_id)
        if known != wanted:
            told = f"{token_id} is {_spelled(known)} in the first and {_spelled(wanted)} in the second"
            raise ConfigError("speculation", value, f"{models} have other tokens: {told}; {advice}")


def _spelled(token: bytes) -> str:
    return repr(token.decode("utf-8", "backslashreplace"))
