"""Random blocks of a format."""

import numpy as np
from numpy.typing import NDArray

from octavo.execution.quant import TensorType
from octavo.execution.quant.layout import LAYOUTS


def random_blocks(tensor_type: TensorType, blocks: int, seed: int) -> NDArray[np.uint8]:
    """Random codes under scales of ordinary size (random scale bytes would mostly be huge, subnormal or NaN)."""
    rng = np.random.default_rng([seed, tensor_type.ggml_id])
    raw = rng.integers(0, 256, blocks * tensor_type.block_bytes, dtype=np.uint8)
    view = raw.view(LAYOUTS[tensor_type])
    for name in sorted({"d", "m", "dmin"} & set(LAYOUTS[tensor_type].names)):
        view[name] = rng.normal(size=blocks) * 0.01
    if tensor_type is TensorType.F8:
        view["qs"][view["qs"] & 0x7F == 0x7F] = 0x7E  # NaN
    return raw
