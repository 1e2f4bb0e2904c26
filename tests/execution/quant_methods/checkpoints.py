"""Tiny Hugging Face models whose linears a packer quantises, and their twins that hold the same numbers as floats."""

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from octavo.execution.loader import open_checkpoint
from octavo.execution.loader.tiny import TinyModel, write_tiny_model
from tests.execution.quant_methods.packers import Array, Packer, Tensor

Config = Mapping[str, Any]

TINY = TinyModel(hidden=128, intermediate=192, heads=4, kv_heads=2, layers=2)
FILE = "model.safetensors"
_DTYPES = {
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,
    "F8_E4M3": np.uint8,
    "I8": np.int8,
    "I32": np.int32,
    "I64": np.int64,
}


@dataclass(frozen=True)
class Kind:
    """A way to quantise."""

    packer: Packer
    config: Config
    """`quantization_config`."""
    key: str = "quantization_config"


def write(
    folder: Path, kind: Kind, model: TinyModel = TINY, *, wanted: Callable[[str], bool] = lambda name: True
) -> dict[str, Array]:
    """Writes the model with its linears quantised; returns the values of all matrices by name.

    Args:
        wanted: which linears to quantise, by the name of their module.
    """
    write_tiny_model(folder, model, format="safetensors")
    return quantise(folder, kind, wanted=wanted)


def quantise(folder: Path, kind: Kind, *, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, Array]:
    """Quantises the linears of a folder of floats; see `write`."""
    tensors, values = {}, {}
    for name, plain in read(folder).items():
        module = name.removesuffix(".weight")
        if not module.endswith("_proj") or not name.endswith(".weight") or not wanted(module):
            tensors[name] = Tensor("F32", plain)
            values[name] = plain
            continue
        packed = kind.packer(plain.astype(np.float64))
        tensors |= {f"{module}.{part}": tensor for part, tensor in packed.tensors.items()}
        values[name] = packed.values
    rewrite(folder, tensors)
    configure(folder, **{kind.key: dict(kind.config)})
    return values


def write_twin(folder: Path, values: Mapping[str, Array], model: TinyModel = TINY) -> None:
    """The same model with these matrices as floats."""
    write_tiny_model(folder, model, format="safetensors")
    rewrite(folder, {name: Tensor("F32", value) for name, value in values.items()})


def read(folder: Path) -> dict[str, Array]:
    checkpoint = open_checkpoint([folder / FILE])
    return {name: checkpoint.float32(name) for name in checkpoint.tensors}


def stored(folder: Path) -> dict[str, Tensor]:
    """The folder's tensors as they stand there."""
    raw = (folder / FILE).read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, entry in json.loads(raw[8:start]).items():
        begin, end = entry["data_offsets"]
        data = np.frombuffer(raw[start + begin : start + end], _DTYPES[entry["dtype"]])
        tensors[name] = Tensor(entry["dtype"], data.reshape(entry["shape"]))
    return tensors


def rewrite(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Replaces the folder's tensors."""
    header, offset = {}, 0
    for name, tensor in tensors.items():
        end = offset + tensor.data.nbytes
        header[name] = {"dtype": tensor.dtype, "shape": tensor.data.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    data = b"".join(tensor.data.tobytes() for tensor in tensors.values())
    (folder / FILE).write_bytes(struct.pack("<Q", len(text)) + text + data)


def configure(folder: Path, **changes: Any) -> None:
    """Changes config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
