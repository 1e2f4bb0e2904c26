"""Writes a GGUF model as a Hugging Face folder of float32 weights, for engines that read nothing else.

    python benchmarks/peers/dequantize.py MODEL FOLDER

MODEL is a name or a file, read by Octavo's own loader. The folder gets config.json and model.safetensors, no tokenizer:
give the engine token ids. Afterwards the folder is opened again and must give the same program.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from octavo.execution.loader import open_checkpoint
from octavo.execution.weights import LoadedWeight, checkpoint_header, load_model
from octavo.hub import resolve
from octavo.model.config import DecoderConfig
from octavo.model.families.gemma3 import config_from_gguf as gemma3_config
from octavo.model.families.llama import config_from_gguf as llama_config
from octavo.model.families.qwen2 import config_from_gguf as qwen2_config
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.registry import define_model, find_family
from octavo.model.sources import AddOne

READERS = {"llama": llama_config, "qwen2": qwen2_config, "gemma3": gemma3_config}
DEFAULT_BASES = {"llama": 1e4, "qwen2": 1e4, "gemma3": 1e6}
NAMES = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu"},
    "gemma3": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
    },
}


def hf_config(config: DecoderConfig, header: CheckpointHeader) -> dict[str, Any]:
    """config.json of a decoder. Rotary bases are read from the file: the config holds them as frequencies."""
    s, bases = config.sizes, f"{config.family}.rope.freq_base"
    return NAMES[config.family] | {
        "torch_dtype": "float32",
        "vocab_size": s.vocab_size,
        "hidden_size": s.hidden_size,
        "num_hidden_layers": s.num_layers,
        "num_attention_heads": s.num_heads,
        "num_key_value_heads": s.num_kv_heads,
        "head_dim": s.head_dim,
        "intermediate_size": s.mlp_size,
        "max_position_embeddings": s.max_positions,
        "rms_norm_eps": s.rms_eps,
        "rope_theta": header.metadata.get(bases, DEFAULT_BASES[config.family]),
        "tie_word_embeddings": config.tied_embeddings,
        **(_windows(config, header.metadata.get(f"{bases}_swa", 1e4)) if config.family == "gemma3" else {}),
    }


def _windows(config: DecoderConfig, local_base: object) -> dict[str, Any]:
    (window,) = {layer.window for layer in config.layers} - {None}
    kinds = {None: "full_attention", window: "sliding_attention"}
    return {
        "sliding_window": window,
        "layer_types": [kinds[layer.window] for layer in config.layers],
        "rope_local_base_freq": local_base,
        "query_pre_attn_scalar": round(config.attention_scale**-2),
    }


def hf_tensors(config: dict[str, Any], weights: Mapping[str, LoadedWeight]) -> dict[str, np.ndarray]:
    """The weights under their names in such a folder."""
    sources = define_model(CheckpointHeader("config.json", Naming.HF, config, {})).sources
    return {
        source.name: weights[name].float32() - np.float32(isinstance(source.transform, AddOne))
        for name, source in sources.items()
    }


def dequantize(model: str, folder: Path) -> None:
    """Writes the folder and checks it."""
    checkpoint = open_checkpoint(resolve(model).files)
    header = checkpoint_header(checkpoint)
    program, weights = load_model(checkpoint)
    config = hf_config(READERS[find_family(header).name](header), header)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(hf_tensors(config, weights), folder / "model.safetensors", {"format": "pt"})
    again, _ = load_model(open_checkpoint(resolve(str(folder)).files))
    if (again.ops, again.weights, again.ropes) != (program.ops, program.weights, program.ropes):
        raise SystemExit(f"{folder} holds another model than {model}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    dequantize(arguments.model, arguments.folder)


if __name__ == "__main__":
    main()
