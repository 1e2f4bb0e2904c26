"""The package compressed-tensors writes what we read, and unpacks it to what we compute; torch knows 8-bit floats."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.execution.loader import open_checkpoint
from octavo.execution.quant import TensorType as Q
from octavo.execution.quant import dequantize, native_type
from octavo.execution.quant.e4m3 import E4M3_VALUES
from octavo.execution.quant_methods import encode, packed_weights
from tests.execution.quant_methods.checkpoints import FILE, rewrite, write, write_twin
from tests.execution.quant_methods.kinds import KINDS, ct_config
from tests.execution.quant_methods.packers import Tensor
from tests.execution.quant_methods.test_answers import PROMPT, scores

torch = pytest.importorskip("torch")

NAMES = {"float32": "F32", "int8": "I8", "int32": "I32", "int64": "I64", "float8_e4m3fn": "F8_E4M3"}
SHAPE = (64, 128)


def test_numbers_of_eight_bits() -> None:
    codes = torch.arange(256, dtype=torch.int64).to(torch.uint8)
    theirs = codes.view(torch.float8_e4m3fn).to(torch.float32).numpy()
    np.testing.assert_array_equal(E4M3_VALUES, theirs)


def weights(kind: str, bits: int, strategy: str, *, symmetric: bool = True, **more: Any) -> dict[str, Any]:
    return {"type": kind, "num_bits": bits, "strategy": strategy, "symmetric": symmetric} | more


CASES: dict[str, tuple[str, dict[str, Any], Q]] = {
    "W4A16, groups": ("pack-quantized", weights("int", 4, "group", group_size=32), Q.Q4_0),
    "W4A16, channels": ("pack-quantized", weights("int", 4, "channel"), Q.Q4_0),
    "W4A16, asymmetric": ("pack-quantized", weights("int", 4, "group", group_size=64, symmetric=False), Q.Z4),
    "W8A16": ("pack-quantized", weights("int", 8, "channel"), Q.Q8_0),
    "W8A16, asymmetric": ("pack-quantized", weights("int", 8, "group", group_size=32, symmetric=False), Q.F32),
    "W2A16": ("pack-quantized", weights("int", 2, "group", group_size=32), Q.Z4),
    "W8A8": ("int-quantized", weights("int", 8, "channel"), Q.Q8_0),
    "FP8": ("float-quantized", weights("float", 8, "channel"), Q.F8),
    "FP8 in blocks": ("float-quantized", weights("float", 8, "block", block_structure=[32, 64]), Q.F8),
}


@pytest.mark.parametrize("name", CASES)
def test_what_compressed_tensors_writes(name: str, tmp_path: Path) -> None:
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    file_format, arguments, number_format = CASES[name]
    args = QuantizationArgs(**arguments)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    compressor = BaseCompressor.get_value_from_registry(file_format)
    compressed = compressor.compress(parameters(args), scheme)
    theirs = compressor.decompress(compressed, scheme)["weight"].numpy()

    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": ct_config(arguments, file_format)}))
    rewrite(tmp_path, {f"a.{part}": as_stored(tensor) for part, tensor in compressed.items()})
    packed = packed_weights(open_checkpoint([tmp_path / FILE]))
    assert list(packed.weights) == ["a.weight"]
    ours = encode("a.weight", packed.weights["a.weight"].read)
    assert ours.type is number_format and native_type(ours.type)
    np.testing.assert_array_equal(dequantize(ours.type, ours.raw, SHAPE), theirs)


def parameters(args: Any) -> dict[str, Any]:
    """Of a linear before it is compressed. Scales are numbers of float16, held as float32."""
    rng = np.random.default_rng(5)
    rows, columns = SHAPE
    size = {"group": (1, args.group_size), "block": args.block_structure, "channel": (1, columns)}[args.strategy]
    shape = (rows // size[0], columns // size[1])
    scales = rng.uniform(0.01, 0.02, shape).astype(np.float16).astype(np.float32)
    found = {
        "weight": torch.from_numpy(rng.standard_normal(SHAPE, dtype=np.float32) * np.float32(0.03)),
        "weight_scale": torch.from_numpy(scales),
    }
    if not args.symmetric:
        low = -(2 ** (args.num_bits - 1))
        found["weight_zero_point"] = torch.from_numpy(rng.integers(low, -low, shape).astype(np.int8))
    return found


def as_stored(tensor: Any) -> Tensor:
    dtype = NAMES[str(tensor.dtype).removeprefix("torch.")]
    held = tensor.view(torch.uint8) if dtype == "F8_E4M3" else tensor
    return Tensor(dtype, held.contiguous().numpy())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["W4A16", "W4A16, per channel", "float8 per block"])
def test_transformers_reads_these_files_as_the_same_model(kind: str, tmp_path: Path) -> None:
    """Files of ours are what Hugging Face reads, too, and it computes with the numbers that we are compared to."""
    pytest.importorskip("compressed_tensors")
    transformers = pytest.importorskip("transformers")
    write_twin(tmp_path / "twin", write(tmp_path / "packed", KINDS[kind][0]))
    model = transformers.AutoModelForCausalLM.from_pretrained(str(tmp_path / "packed"), dtype=torch.float32).eval()
    with torch.no_grad():
        logprobs = model(torch.tensor([PROMPT])).logits[0].double().log_softmax(-1).numpy()
    theirs = [logprobs[place, token] for place, token in enumerate(PROMPT[1:])]
    np.testing.assert_allclose(scores(tmp_path / "twin"), theirs, atol=2e-4)
