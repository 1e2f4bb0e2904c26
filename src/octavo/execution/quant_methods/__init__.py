"""Quantised checkpoints of Hugging Face: how methods pack weights, and the way into Octavo's number formats."""

from octavo.execution.quant_methods.encode import encode
from octavo.execution.quant_methods.kv_scales import tell_of_kv_scales
from octavo.execution.quant_methods.matrices import PackedWeight, PackedWeights
from octavo.execution.quant_methods.registry import packed_weights

__all__ = ["PackedWeight", "PackedWeights", "encode", "packed_weights", "tell_of_kv_scales"]
