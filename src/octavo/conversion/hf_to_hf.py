"""A Hugging Face folder in another number format: the same names; of quantised matrices codes and scales in the form
that compressed-tensors calls pack-quantized, groups of 32 inputs, symmetric.

Of the types that Octavo knows, Q4_0 and Q8_0 can be said so without loss. As other engines expect it, the token
embedding and the matrix that gives the logits stay floats.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.conversion.gguf_to_gguf import roles_of_tensors
from octavo.conversion.plan import Bytes, Change, FolderPlan, Source
from octavo.errors import ConfigError, UnsupportedModelError
from octavo.execution.loader import Checkpoint, TensorInfo
from octavo.execution.loader.safetensors import QUANTISATION_KEYS
from octavo.execution.loader.safetensors_writer import SafeTensor
from octavo.execution.quant import TensorType
from octavo.execution.quant.convert import convert
from octavo.execution.quant.layout import blocks_of
from octavo.execution.quant.packing import unpack
from octavo.execution.quant.recipe import FLOATS, Recipe, Role
from octavo.execution.weights import checkpoint_header
from octavo.model.registry import define_model
from octavo.model.sources import Transposed

_BLOCK = 32
_COPIED = (
    "added_tokens.json", "chat_template.jinja", "chat_template.json", "generation_config.json", "merges.txt",
    "special_tokens_map.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json",
)  # fmt: skip
_BESIDE = ("LICENSE*", "NOTICE*", "USE_POLICY*")
"""Terms come along, too."""
_TORCH_NAMES = {TensorType.F32: "float32", TensorType.F16: "float16", TensorType.BF16: "bfloat16"}
_DTYPE_KEYS = ("dtype", "torch_dtype")
_WEIGHT = ".weight"
_LINEARS = (Role.MATRIX, Role.CLOSING)


def plan_hf_to_hf(source: Source, checkpoint: Checkpoint, recipe: Recipe, pool: ThreadPoolExecutor) -> FolderPlan:
    """The plan of a folder.

    Raises:
        ConfigError: a type that such folders do not hold.
        UnsupportedModelError: the source is quantised already, or not a model that Octavo runs.
    """
    _check(source, checkpoint, recipe)
    definition = define_model(checkpoint_header(checkpoint))
    roles = roles_of_tensors(definition)
    turned = {where.name for where in definition.sources.values() if isinstance(where.transform, Transposed)}
    tensors, changes, floats = [], [], []
    for info in checkpoint.tensors.values():
        role = roles.get(info.name, Role.OTHER)
        target = _target(info, role, recipe, is_turned=info.name in turned)
        changes.append(Change(info.name, info.type, target))
        if target in FLOATS:
            floats += [info.name] if role in _LINEARS or (role is Role.OTHER and len(info.shape) == 2) else []
            tensors.append(_float(checkpoint, info, target, pool))
        else:
            tensors += _Packed(checkpoint, info, target, pool).tensors()
    config = _config(checkpoint.metadata, recipe, [name.removesuffix(_WEIGHT) for name in floats])
    return FolderPlan(config, tensors, changes, _files_beside(source.folder))


def _check(source: Source, checkpoint: Checkpoint, recipe: Recipe) -> None:
    said = [key for key in QUANTISATION_KEYS if checkpoint.metadata.get(key) is not None]
    if said:
        raise UnsupportedModelError(
            f"{source.name}: config.json: {said[0]}: is quantised already; take the float model"
        )
    if recipe.weights not in FLOATS and recipe.weights not in _CODES:
        held = ", ".join(kind.name.lower() for kind in (*_CODES, *_TORCH_NAMES))
        problem = f"is a type that safetensors folders do not hold; they hold {held}. --format gguf holds all"
        raise ConfigError("to", recipe.weights.name.lower(), problem)
    for field, kind in (("output_type", recipe.output), ("embedding_type", recipe.embedding)):
        if kind is not None and kind not in FLOATS:
            problem = "must be f32, f16 or bf16 in safetensors folders: other engines read these tables as floats"
            raise ConfigError(field, kind.name.lower(), problem)


def _target(info: TensorInfo, role: Role, recipe: Recipe, *, is_turned: bool) -> TensorType:
    own = {Role.OUTPUT: recipe.output, Role.EMBEDDING: recipe.embedding}.get(role)
    if own is not None:
        return own
    if role is Role.OTHER:
        return info.type
    if recipe.weights in FLOATS:
        return recipe.weights
    fits = role in _LINEARS and info.shape[-1] % _BLOCK == 0 and not is_turned and info.name.endswith(_WEIGHT)
    return recipe.weights if fits and len(info.shape) == 2 else info.type


def _float(checkpoint: Checkpoint, info: TensorInfo, target: TensorType, pool: ThreadPoolExecutor) -> SafeTensor:
    rows = _rows(checkpoint, info)
    width = info.shape[-1] if info.shape else 1
    return SafeTensor(info.name, target.name, info.shape, convert(info.name, info.type, rows, width, target, pool))


def _rows(checkpoint: Checkpoint, info: TensorInfo) -> NDArray[np.uint8]:
    return checkpoint.raw(info.name).reshape(prod(info.shape[:-1]), -1)


class _Packed:
    """The three tensors of one quantised matrix."""

    def __init__(self, checkpoint: Checkpoint, info: TensorInfo, target: TensorType, pool: ThreadPoolExecutor) -> None:
        self._info, self._target = info, target
        self._blocks = convert(info.name, info.type, _rows(checkpoint, info), info.shape[-1], target, pool)
        self._scales: list[Bytes] = []

    def tensors(self) -> list[SafeTensor]:
        """In the order in which they must be written: the scales are found with the codes."""
        name, (outputs, inputs) = self._info.name, self._info.shape
        bits = 4 if self._target is TensorType.Q4_0 else 8
        return [
            SafeTensor(f"{name}_packed", "I32", (outputs, inputs * bits // 32), self._codes()),
            SafeTensor(f"{name}_scale", "F16", (outputs, inputs // _BLOCK), self._scales),
            SafeTensor(f"{name}_shape", "I64", (2,), [np.array([outputs, inputs], "<i8")]),
        ]

    def _codes(self) -> Iterator[Bytes]:
        for piece in self._blocks:
            blocks = blocks_of(self._target, piece)
            self._scales.append(blocks["d"].copy())
            yield _CODES[self._target](blocks)


def _nibbles(blocks: NDArray[np.void]) -> Bytes:
    """Codes 0..15 of neighbouring inputs, the first in the low half of a byte; files of Q4_0 pair inputs 16 apart."""
    codes = unpack(blocks["qs"], 4, 16)
    return codes[:, 0::2] | (codes[:, 1::2] << np.uint8(4))


def _bytes(blocks: NDArray[np.void]) -> Bytes:
    """Codes around 128."""
    return blocks["qs"].view(np.uint8) ^ np.uint8(128)


_CODES: Mapping[TensorType, Callable[[NDArray[np.void]], Bytes]] = {TensorType.Q8_0: _bytes, TensorType.Q4_0: _nibbles}


def _config(config: Mapping[str, Any], recipe: Recipe, floats: list[str]) -> dict[str, Any]:
    """config.json with what has changed. `floats`: modules that are linears, or may be, and are not quantised."""
    written = dict(config)
    if recipe.weights in FLOATS:
        keys = [key for key in _DTYPE_KEYS if key in written] or [_DTYPE_KEYS[-1]]
        return written | dict.fromkeys(keys, _TORCH_NAMES[recipe.weights])
    bits = 4 if recipe.weights is TensorType.Q4_0 else 8
    weights = {
        "num_bits": bits, "type": "int", "symmetric": True, "strategy": "group", "group_size": _BLOCK,
        "dynamic": False, "observer": "minmax", "actorder": None, "block_structure": None,
    }  # fmt: skip
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}
    written["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head", *floats],
        "kv_cache_scheme": None,
    }
    return written


def _files_beside(folder: Path) -> list[Path]:
    named = [folder / name for name in _COPIED if (folder / name).is_file()]
    return named + sorted(path for pattern in _BESIDE for path in folder.glob(pattern) if path.is_file())
