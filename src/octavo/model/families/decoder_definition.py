"""From what a file says of a decoder to what is loaded: its program, and where its weights stand."""

from collections.abc import Callable, Mapping

from octavo.model.config import DecoderConfig
from octavo.model.families.decoder import pre_norm_decoder
from octavo.model.families.mixture import MixtureNames, mixture_sources
from octavo.model.families.naming import decoder_sources, redundant_tensors
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Program
from octavo.model.sources import ModelDefinition, WeightSource

Change = Callable[[Mapping[str, WeightSource], DecoderConfig, Naming], dict[str, WeightSource]]
"""What a family's files do to weights, put into their sources."""


def decoder_definition(
    header: CheckpointHeader,
    read: Mapping[Naming, Callable[[CheckpointHeader], DecoderConfig]],
    *names: Mapping[Naming, Mapping[str, str]],
    build: Callable[[DecoderConfig], Program] = pre_norm_decoder,
    change: Change | None = None,
    experts: Mapping[Naming, MixtureNames] | None = None,
) -> ModelDefinition:
    """
    Args:
        read: the config of each kind of file that the family has.
        names: as of `decoder_sources`; later ones win.
        change: of the weights that these name; None: files hold what is multiplied.
        experts: names of the experts in each kind of file that can have them.

    Raises:
        ModelFileError, UnsupportedModelError: what `read` raises.
    """
    naming = header.naming
    config = read[naming](header)
    program = build(config)
    parts = {part: name for one in names for part, name in one[naming].items()}
    sources = decoder_sources(program, naming, parts)
    if change is not None:
        sources = change(sources, config, naming)
    if experts is not None and naming in experts:
        sources |= mixture_sources(config, header, experts[naming])
    return ModelDefinition(program, sources, redundant_tensors(config, naming))
