"""Number formats of weights: their block layouts, to float32 and back, and the way into a native format."""

from octavo.execution.quant.dequantize import dequantize
from octavo.execution.quant.fit import fit
from octavo.execution.quant.native import NATIVE_TYPES, native_type, to_native
from octavo.execution.quant.quantize import WRITABLE_TYPES, quantize
from octavo.execution.quant.types import TensorType

__all__ = [
    "NATIVE_TYPES",
    "WRITABLE_TYPES",
    "TensorType",
    "dequantize",
    "fit",
    "native_type",
    "quantize",
    "to_native",
]
