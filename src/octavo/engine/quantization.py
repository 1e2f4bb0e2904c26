"""Quantising a model while it loads, as `quantization` asks."""

import logging
from collections.abc import Mapping

from octavo.errors import ConfigError
from octavo.execution.quant.fit import FIT_VERSION
from octavo.execution.quant.recipe import Recipe, named_type
from octavo.execution.requantize import quantised_types, requantized
from octavo.execution.weights import LoadedWeight
from octavo.model.program import Program

log = logging.getLogger(__name__)

Weights = Mapping[str, LoadedWeight]


def quantised_at_load(name: str | None, program: Program, weights: Weights, threads: int) -> Weights:
    """The weights in the type of this name: those that `octavo quantize --to NAME` would write, bit for bit.

    Raises:
        ConfigError: no type has this name, or nothing would change.
        UnsupportedModelError: a weight that the type cannot hold.
    """
    if name is None:
        return weights
    quantised = requantized(program, weights, Recipe(named_type("quantization", name)), threads)
    changed = {weights[key].type for key in weights if quantised[key] is not weights[key]}
    if not changed:
        stored = ", ".join(sorted(kind.name for kind in quantised_types(program, weights))) or name.upper()
        problem = f"would change nothing: the model's matrices are in {stored} already; leave it out"
        raise ConfigError("quantization", name, problem)
    twice = sorted(kind.name for kind in changed & quantised_types(program, weights))
    if twice:
        log.warning("quantised to %s from %s, which had lost some already: better from floats", name, ", ".join(twice))
    return quantised


def quantised_name(weights_name: str, quantization: str | None) -> str:
    """Names weights that were quantised at load, for fingerprints: other ways to find scales are other weights."""
    return weights_name if quantization is None else f"{weights_name} as {quantization}, fit {FIT_VERSION}"
