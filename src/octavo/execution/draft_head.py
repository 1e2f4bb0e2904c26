"""From the checkpoint of a draft head to its program and weights, and to those of a target that serves it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from octavo.errors import ModelFileError
from octavo.execution.loader.checkpoint import MappedCheckpoint
from octavo.execution.protocols import Int32
from octavo.execution.weights import LoadedWeight, checkpoint_header, read_weights
from octavo.model.draft_head import HeadDefinition
from octavo.model.program import Program
from octavo.model.registry import define_head

INTEGER_TENSORS = frozenset({"d2t", "t2d"})
"""Tables that heads with a vocabulary of their own have beside their weights."""


@dataclass(frozen=True)
class LoadedHead:
    """A draft head, and its target as it must be run beside it."""

    program: Program
    """See `HeadDefinition.program`."""
    weights: Mapping[str, LoadedWeight] = field(repr=False)
    """All weights of `program`, those of the target among them."""
    borrowed: Mapping[str, str]
    """Which of them are the target's: name in `program` -> name in `target`."""
    target: Program
    """The target's program, which also computes `features`."""
    target_weights: Mapping[str, LoadedWeight] = field(repr=False)
    token_ids: Int32 | None
    """Row of the logits -> token id; None: they are the same."""


def load_head(checkpoint: MappedCheckpoint, target: Program, target_weights: Mapping[str, LoadedWeight]) -> LoadedHead:
    """Reads a head for the model that `target` computes.

    Raises:
        UnsupportedModelError: no known layout, a feature that its layout does not compute, tensors left over.
        ModelFileError: settings or tensors that are missing, absurd, or do not fit the target.
    """
    tables = {name: info.shape for name, info in checkpoint.integer_tensors.items()}
    header = replace(checkpoint_header(checkpoint), tables=tables)
    head = define_head(header, target)
    own = {name: weight for name, weight in head.program.weights.items() if name not in head.borrowed}
    more = {name: weight for name, weight in head.target.weights.items() if name not in target.weights}
    read = read_weights(checkpoint, head.program.name, own | more, head.sources, head.ignored_tensors)
    lent = {name: target_weights[theirs] for name, theirs in head.borrowed.items()}
    return LoadedHead(
        program=head.program,
        weights={name: read[name] for name in own} | lent,
        borrowed=head.borrowed,
        target=head.target,
        target_weights={**target_weights, **{name: read[name] for name in more}},
        token_ids=_token_ids(checkpoint, head, header.path),
    )


def _token_ids(checkpoint: MappedCheckpoint, head: HeadDefinition, path: str) -> Int32 | None:
    """Raises ModelFileError where an id is none of the target's."""
    if head.offsets is None:
        return None
    offsets, rows = checkpoint.integers(head.offsets), head.program.vocab_size
    if offsets.shape != (rows,):
        raise ModelFileError(f"{path}: tensor {head.offsets} is {list(offsets.shape)}, not one offset for {rows} rows")
    token_ids = np.arange(rows) + offsets
    wrong = np.flatnonzero((token_ids < 0) | (token_ids >= head.target.vocab_size))
    if len(wrong):
        row = int(wrong[0])
        raise ModelFileError(
            f"{path}: {head.offsets}[{row}]={offsets[row]} makes row {row} of the logits token {token_ids[row]}, of a"
            f" target with {head.target.vocab_size} tokens: take the head that was made for this model"
        )
    return token_ids.astype(np.int32)
