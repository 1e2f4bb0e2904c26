"""Writes golden.json: random blocks of every format of files and what the public `gguf` package decodes them to.

Run it only to add a format: `python -m tests.execution.quant.make_golden`.
"""

import json

from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from octavo.execution.quant.layout import LAYOUTS
from tests.execution.quant.blocks import random_blocks
from tests.execution.quant.golden_file import GOLDEN

_BLOCKS = 2


def main() -> None:
    golden = {}
    for tensor_type in filter(lambda t: t.is_in_files, LAYOUTS):
        raw = random_blocks(tensor_type, _BLOCKS, seed=1)
        values = dequantize(raw.reshape(_BLOCKS, -1), GGMLQuantizationType[tensor_type.name])
        golden[tensor_type.name] = {"raw": raw.tobytes().hex(), "float32": values.astype("<f4").tobytes().hex()}
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
