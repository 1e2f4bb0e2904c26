"""OLMo 2 (OLMo Team 2024, arXiv:2501.00656): blocks read x as it is and their results are normed; q and k are normed
over all heads together."""

from dataclasses import replace

from octavo.model.builder import ProgramBuilder
from octavo.model.config import DecoderConfig
from octavo.model.families.decoder import finish, gated_mlp, self_attention
from octavo.model.families.decoder_definition import decoder_definition
from octavo.model.families.naming import POST_NORMS, QK_NORMS
from octavo.model.families.plain import gguf_decoder, hf_decoder, with_hf_biases
from octavo.model.families.sizes import gguf_fields, hf_fields
from octavo.model.family import Family
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Program
from octavo.model.sources import ModelDefinition


def build(config: DecoderConfig) -> Program:
    """x = x + norm(attention(x)); x = x + norm(mlp(x))."""
    s = config.sizes
    b = ProgramBuilder(config.name, config.ropes)
    x = b.embed("embed", s.vocab_size, s.hidden_size, out="x")
    for i in range(s.num_layers):
        h = self_attention(b, x, config, i)
        x = b.add(x, b.rms_norm(h, f"layers.{i}.attn.post_norm", s.rms_eps, out="h"), out="x")
        h = gated_mlp(b, x, config, i)
        x = b.add(x, b.rms_norm(h, f"layers.{i}.mlp.post_norm", s.rms_eps, out="h"), out="x")
    return finish(b, x, config)


def config_from_gguf(header: CheckpointHeader) -> DecoderConfig:
    return _olmo2(gguf_decoder(header, gguf_fields(header, "olmo2"), "olmo2"))


def config_from_hf(header: CheckpointHeader) -> DecoderConfig:
    fields = hf_fields(header)
    return _olmo2(with_hf_biases(hf_decoder(header, fields, "olmo2"), fields))


def _olmo2(plain: DecoderConfig) -> DecoderConfig:
    return replace(plain, qk_norm=True, qk_norm_over_heads=True)


_READ = {Naming.GGUF: config_from_gguf, Naming.HF: config_from_hf}


def define(header: CheckpointHeader) -> ModelDefinition:
    return decoder_definition(header, _READ, POST_NORMS, QK_NORMS, build=build)


OLMO2 = Family(
    name="olmo2",
    gguf_architectures=("olmo2",),
    hf_architectures=("Olmo2ForCausalLM",),
    hf_model_types=("olmo2",),
    define=define,
)
