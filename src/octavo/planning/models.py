"""From what a model says about itself to its shape and the format of its weights."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from math import prod
from typing import Any

from octavo.errors import UnsupportedModelError
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.registry import define_model
from octavo.planning.from_config import known_traits, shape_of_config
from octavo.planning.from_program import shape_of_program
from octavo.planning.gguf_config import config_of_gguf
from octavo.planning.parameters import num_parameters
from octavo.planning.shape import ModelShape
from octavo.planning.weights import WeightFormat, format_named, format_of_config, stored_format

_SHIPPED = files("octavo.planning") / "models"
_STORED = "stored_weight_bytes"
"""A key of shipped configs: bytes of the tensors of the file that Octavo knows by this name."""

_TEXT_PART = "text_config"
"""Where configs of models that see or hear keep what the decoder needs."""


@dataclass(frozen=True)
class StoredWeights:
    """What the tensors of a file take."""

    num_bytes: int
    is_integer: bool
    """Most of it is in integer formats."""


@dataclass(frozen=True)
class PricedModel:
    """A model as the ledger takes it."""

    shape: ModelShape
    weights: WeightFormat


def shipped_models() -> tuple[str, ...]:
    """Names of the configs that come with Octavo."""
    return tuple(sorted(file.name.removesuffix(".json") for file in _SHIPPED.iterdir() if file.name.endswith(".json")))


def shipped_model(name: str, weights: str | None = None) -> PricedModel:
    """A model whose config comes with Octavo; KeyError where there is none.

    Args:
        weights: a number format; None: the config's.
    """
    if name not in shipped_models():
        raise KeyError(name)
    config: dict[str, Any] = json.loads((_SHIPPED / f"{name}.json").read_text(encoding="utf-8"))
    stored = config.pop(_STORED, None)
    header = CheckpointHeader(path=f"{name}.json", naming=Naming.HF, metadata=config, shapes={})
    return priced_model(header, name, None if stored is None else StoredWeights(stored, is_integer=True), weights)


def priced_model(
    header: CheckpointHeader, name: str, stored: StoredWeights | None = None, weights: str | None = None
) -> PricedModel:
    """A model from its header.

    Args:
        stored: the file's tensors; None: there is only a config.
        weights: a number format to price instead.

    Raises:
        ModelFileError: metadata is missing or absurd.
        ConfigError: the weights' format is unknown.
    """
    shape = _noted(shape_of_header(header, name), header)
    if weights is not None:
        return PricedModel(shape, format_named(weights))
    if stored is not None:
        count = num_parameters(shape)
        return PricedModel(shape, stored_format(stored.num_bytes, count, is_integer=stored.is_integer))
    return PricedModel(shape, format_of_config(header.metadata))


def shape_of_header(header: CheckpointHeader, name: str) -> ModelShape:
    """The program's shape where Octavo runs the model, else the formula's, with the reason in its notes."""
    try:
        program = define_model(header).program
    except UnsupportedModelError as refusal:
        known = architecture_of(header) in known_traits()
        return _by_formula(header, name, "Octavo does not run this architecture" if known else str(refusal))
    return shape_of_program(program, name, architecture_of(header))


def architecture_of(header: CheckpointHeader) -> str:
    """As the file names it."""
    if header.naming is Naming.GGUF:
        return str(header.metadata["general.architecture"])
    listed = header.metadata.get("architectures")
    return str(listed[0] if isinstance(listed, list | tuple) and listed else header.metadata.get("model_type"))


def _by_formula(header: CheckpointHeader, name: str, reason: str) -> ModelShape:
    architecture = architecture_of(header)
    notes: tuple[str, ...] = (f"priced by formula: {reason}",)
    if header.naming is Naming.GGUF:
        fields, traits = config_of_gguf(header, architecture)
        return shape_of_config(fields, name, architecture, traits, notes)
    config = header.metadata
    if isinstance(text := config.get(_TEXT_PART), Mapping):
        config, notes = {**config, **text}, (*notes, "only its text part is counted")
    return shape_of_config(Fields(header.path, config), name, architecture, notes=notes)


def _noted(shape: ModelShape, header: CheckpointHeader) -> ModelShape:
    """With a note where the file's tensors are not those that were counted."""
    held, counted = sum(prod(tensor) for tensor in header.shapes.values()), num_parameters(shape)
    if not header.shapes or held == counted:
        return shape
    return replace(shape, notes=(*shape.notes, f"the file holds {held:,} values, {counted:,} are counted"))
