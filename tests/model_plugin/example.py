"""The example package, and what config.json of its models says."""

from pathlib import Path

from octavo.model.header import CheckpointHeader, Naming

EXAMPLE = Path(__file__).parents[2] / "examples" / "model_plugin"
CONFIG = {
    "architectures": ["StableLmForCausalLM"],
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "use_parallel_residual": True,
}


def header(**changes: object) -> CheckpointHeader:
    return CheckpointHeader("folder", Naming.HF, {**CONFIG, **changes}, {})
