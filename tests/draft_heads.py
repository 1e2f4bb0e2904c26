"""Draft heads of public layouts with random weights, written as their checkpoints are."""

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from octavo.execution.draft_head import INTEGER_TENSORS, LoadedHead, load_head
from octavo.execution.loader.open import open_with_integers
from octavo.execution.loader.tiny import TinyModel
from octavo.execution.loader.tiny.hf_model import write_hf_model
from octavo.execution.loader.tiny.vocabulary import build_vocabulary
from octavo.execution.loader.tiny.weights import Stored, build_weights
from octavo.execution.quant import TensorType, quantize
from octavo.execution.weights import LoadedWeight
from octavo.model.program import Program

Arrays = dict[str, np.ndarray]
_DTYPES = {"float32": "F32", "float16": "F16", "int64": "I64", "bool": "BOOL"}


@dataclass(frozen=True, kw_only=True)
class RandomHead:
    """Sizes and choices of a head."""

    layout: str = "eagle"
    """`eagle` or `eagle3`."""
    hidden: int = 64
    target_hidden: int = 64
    vocab_size: int = 512
    draft_vocab: int | None = None
    """eagle3: its own vocabulary; None: the target's, without tables."""
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 96
    layers: int = 1
    taps: tuple[int, ...] | None = None
    """eagle3, behind so many layers; None: config.json does not say."""
    fc_bias: bool = False
    qkv_bias: bool = False
    own_embedding: bool = False
    own_output: bool = False
    """eagle: an output matrix in the file. eagle3 with a vocabulary of its own always has one."""
    norm_before_residual: bool = False
    midlayer: bool = True
    """eagle3: what the layer is called, `midlayer` or `layers.0`."""
    seed: int = 0

    @property
    def has_output(self) -> bool:
        return self.own_output or self.draft_vocab is not None


def config(head: RandomHead) -> dict[str, Any]:
    """Its config.json."""
    settings = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "hidden_size": head.hidden,
        "intermediate_size": head.intermediate,
        "max_position_embeddings": 2048,
        "model_type": "llama",
        "num_attention_heads": head.heads,
        "num_key_value_heads": head.kv_heads,
        "num_hidden_layers": head.layers,
        "rms_norm_eps": 1e-5,
        "vocab_size": head.vocab_size,
    }
    if head.draft_vocab is not None:
        settings["draft_vocab_size"] = head.draft_vocab
    if head.taps is not None:
        settings["eagle_aux_hidden_state_layer_ids"] = list(head.taps)
    if head.norm_before_residual:
        settings["norm_before_residual"] = True
    return settings


def tensors(head: RandomHead) -> Arrays:
    """Its tensors by their public names; each depends on the seed and its own name alone."""
    width = head.hidden
    shapes: dict[str, tuple[int, ...]] = {}
    if head.layout == "eagle":
        shapes["fc.weight"] = (width, 2 * width)
        for i in range(head.layers):
            shapes |= _layer(head, f"layers.{i}.", width)
            if i > 0:
                shapes[f"layers.{i}.input_layernorm.weight"] = (width,)
    else:
        prefix = "midlayer." if head.midlayer else "layers.0."
        shapes["fc.weight"] = (width, len(head.taps or (0, 0, 0)) * head.target_hidden)
        shapes |= _layer(head, prefix, 2 * width)
        shapes |= {f"{prefix}{norm}.weight": (width,) for norm in ("hidden_norm", "input_layernorm")}
        shapes["norm.weight"] = (width,)
    if head.fc_bias:
        shapes["fc.bias"] = (width,)
    if head.own_embedding:
        shapes["embed_tokens.weight"] = (head.vocab_size, width)
    if head.has_output:
        shapes["lm_head.weight"] = (head.draft_vocab or head.vocab_size, width)
    made = {name: _random(head.seed, name, shape) for name, shape in shapes.items()}
    return made | (_tables(head) if head.draft_vocab is not None else {})


def _layer(head: RandomHead, prefix: str, inputs: int) -> dict[str, tuple[int, ...]]:
    width, kv = head.hidden, head.hidden // head.heads * head.kv_heads
    shapes: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (width, inputs),
        "self_attn.k_proj.weight": (kv, inputs),
        "self_attn.v_proj.weight": (kv, inputs),
        "self_attn.o_proj.weight": (width, width),
        "mlp.gate_proj.weight": (head.intermediate, width),
        "mlp.up_proj.weight": (head.intermediate, width),
        "mlp.down_proj.weight": (width, head.intermediate),
        "post_attention_layernorm.weight": (width,),
    }
    if head.qkv_bias:
        shapes |= {f"self_attn.{part}_proj.bias": (rows,) for part, rows in (("q", width), ("k", kv), ("v", kv))}
    return {prefix + name: shape for name, shape in shapes.items()}


def _random(seed: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
    noise = np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(shape, dtype=np.float32)
    if len(shape) == 2:
        return noise * np.float32(1.5 / np.sqrt(shape[1]))
    return noise * np.float32(0.1) + np.float32("norm" in name)


def _tables(head: RandomHead) -> Arrays:
    """Which ids the draft vocabulary has, ascending."""
    members = np.sort(np.random.default_rng(head.seed).permutation(head.vocab_size)[: head.draft_vocab])
    return {"d2t": members - np.arange(len(members)), "t2d": np.isin(np.arange(head.vocab_size), members)}


def write_head(folder: Path, settings: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Path:
    """Writes config.json and model.safetensors; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    header, offset = {}, 0
    for name, array in arrays.items():
        end = offset + array.nbytes
        header[name] = {"dtype": _DTYPES[array.dtype.name], "shape": array.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    data = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays.values())
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder


def read_head(folder: Path, target: Program, target_weights: Mapping[str, LoadedWeight]) -> LoadedHead:
    """The head in a folder, for a target."""
    return load_head(open_with_integers([folder / "model.safetensors"], INTEGER_TENSORS), target, target_weights)


def write_copied(folder: Path, *, noise: float = 0.0, seed: int = 0) -> tuple[Path, Path]:
    """A model of one layer, and an `eagle` head that computes the same from the last embedding alone, so that it
    is right always; with noise in its weights, now and then. Returns the folders of both.

    A head has neither the norm before the layer nor the last one, which is why these change no direction here:
    embeddings have a mean square of one, and the norms one weight for all values.
    """
    model = TinyModel(layers=1, tied=False, seed=seed)
    stored = build_weights(model)
    embedding = stored["model.embed_tokens.weight"].values
    unit = embedding / np.sqrt(np.mean(embedding * embedding, axis=1, keepdims=True))
    changes = {
        "model.embed_tokens.weight": unit,
        "model.layers.0.input_layernorm.weight": np.ones(model.hidden, np.float32),
        "model.norm.weight": np.full(model.hidden, 3.0, np.float32),
    }
    weights = stored | {name: _stored(values) for name, values in changes.items()}
    target = write_hf_model(folder / "target", model, build_vocabulary(model), weights, shards=1)
    layer = {name.removeprefix("model."): each.values for name, each in weights.items() if ".layers." in name}
    del layer["layers.0.input_layernorm.weight"]
    noisy = {name: values * (1 + noise * _random(seed, name, values.shape)) for name, values in layer.items()}
    fc = np.concatenate((np.eye(model.hidden), np.zeros((model.hidden, model.hidden))), axis=1)
    spec = RandomHead(heads=model.heads, kv_heads=model.kv_heads, intermediate=model.intermediate)
    settings = config(spec) | {"rope_theta": model.rope_theta, "rms_norm_eps": model.norm_epsilon}
    return target, write_head(folder / "head", settings, {"fc.weight": fc.astype(np.float32), **noisy})


def _stored(values: np.ndarray) -> Stored:
    return Stored(TensorType.F32, values.shape, quantize(TensorType.F32, values))
