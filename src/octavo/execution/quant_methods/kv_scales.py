"""Scales of K and V that come with a checkpoint: found, told about, and not used.

They are one number per layer for K and one for V, from a calibration: what an 8-bit KV cache needs that cannot find
scales of its own. Octavo's int8 and fp8 caches have a scale per token and KV head, from the numbers themselves
(docs/executor.md). That is finer, and nothing saturates; a calibrated scale in its place would only lose.
"""

import logging

from octavo.execution.quant_methods.matrices import PackedWeights
from octavo.execution.quant_methods.tensors import Tensors

_SCALES = (
    *("k_scale", "v_scale", "kv_scale", "q_scale", "prob_scale", "prob_output_scale"),
    *("k_zero_point", "v_zero_point", "q_zero_point", "k_proj.output_scale", "v_proj.output_scale"),
)
_ENDINGS = tuple(f".{name}" for name in _SCALES)
_log = logging.getLogger("octavo.quant_methods")


def kv_scales(tensors: Tensors) -> frozenset[str]:
    """Names of the checkpoint's scales for attention and its cache."""
    return frozenset(tensors.ending(*_ENDINGS))


def tell_of_kv_scales(packed: PackedWeights) -> None:
    """Says once per load that they are not used, if there are any."""
    found = sorted(name for name in packed.spare if name.endswith(_ENDINGS))
    if found:
        _log.warning(
            "scales for K and V (%s and %d others) are not used: Octavo's 8-bit KV has its own per token and head",
            found[0],
            len(found) - 1,
        )
