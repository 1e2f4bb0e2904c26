"""Where numbers have ended."""

import numpy as np

from octavo.execution.protocols import Float32, Int32


def rows_with_nan(values: Float32) -> Int32:
    """Rows of `values` `[rows, width]` that hold a NaN, ascending: where the maximum is one. One pass, no copy."""
    with np.errstate(invalid="ignore"):
        return np.flatnonzero(np.isnan(values.max(axis=1))).astype(np.int32)
