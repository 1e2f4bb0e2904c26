"""Mistral (Jiang et al. 2023): llama's decoder, in which every layer may see a window only. Its GGUF files call
themselves llama's, and know no window."""

from dataclasses import replace

from octavo.model.config import DecoderConfig
from octavo.model.families.decoder_definition import decoder_definition
from octavo.model.families.naming import PRE_NORMS
from octavo.model.families.plain import hf_decoder
from octavo.model.families.sizes import hf_fields
from octavo.model.families.windows import MAX_WINDOW, layer_kinds
from octavo.model.family import Family
from octavo.model.fields import Fields
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.sources import ModelDefinition

_WINDOW = "sliding_window"


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    fields = hf_fields(header)
    plain = hf_decoder(header, fields, "mistral")
    fields.accept("layer_types")
    window = _window(fields)
    layers = plain.sizes.num_layers
    return plain if window is None else replace(plain, layers=layer_kinds([True] * layers, window))


def _window(fields: Fields) -> int | None:
    """None where the config says null; 4096, as in its class, where the key is missing."""
    if _WINDOW in fields.values and fields.values[_WINDOW] is None:
        return None
    return fields.integer(_WINDOW, 1, MAX_WINDOW, default=4096)


_READ = {Naming.HF: config_from_hf}


def define(header: CheckpointHeader) -> ModelDefinition:
    return decoder_definition(header, _READ, PRE_NORMS)


MISTRAL = Family(
    name="mistral",
    gguf_architectures=(),
    hf_architectures=("MistralForCausalLM",),
    hf_model_types=("mistral",),
    define=define,
)
