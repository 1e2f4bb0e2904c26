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
    if tensor_type is TensorType.IQ1_M:  # its scale lies in the top four bits of four words
        d = (rng.normal(size=blocks) * 0.01).astype("<f2").view("<u2").astype(np.int64)
        view["scales"] = view["scales"] & 0xFFF | (d[:, None] >> 4 * np.arange(4) & 15) << 12
    if tensor_type is TensorType.MXFP4:
        view["e"] = rng.integers(110, 125, blocks)
    if tensor_type is TensorType.F8:
        view["qs"][view["qs"] & 0x7F == 0x7F] = 0x7E  # NaN
    return raw
