"""Whatever header and config say of a file: it is read, or there is an error of ours."""

import json
import random
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import ModelError
from octavo.execution.loader import open_checkpoint
from octavo.execution.loader.tiny import TinyModel
from octavo.execution.weights import load_model
from tests.execution.quant_methods.checkpoints import FILE, configure, write
from tests.execution.quant_methods.kinds import KINDS

WIDTHS = {"I8": 1, "U8": 1, "F8_E4M3": 1, "F16": 2, "BF16": 2, "I32": 4, "F32": 4, "I64": 8}
VALUES = (None, 0, -1, 1, 7, 16, 48, "x", [], {}, True, False, [1], {"a": 1}, 1e9, "gptq")
Header = dict[str, Any]


def reshaped(header: Header, chance: random.Random) -> None:
    entry = header[chance.choice(list(header))]
    count = prod(entry["shape"])
    entry["shape"] = chance.choice([[count], [1, count], [count, 1], [count, 1, 1], []])


def retyped(header: Header, chance: random.Random) -> None:
    entry, dtype = header[chance.choice(list(header))], chance.choice(list(WIDTHS))
    row_bytes = entry["shape"][-1] * WIDTHS[entry["dtype"]] if entry["shape"] else 1
    if row_bytes % WIDTHS[dtype] == 0:
        entry.update(dtype=dtype, shape=[*entry["shape"][:-1], row_bytes // WIDTHS[dtype]])


def exchanged(header: Header, chance: random.Random) -> None:
    one, other = chance.choice(list(header)), chance.choice(list(header))
    header[one], header[other] = header[other], header[one]


CHANGES: tuple[Callable[[Header, random.Random], None], ...] = (reshaped, retyped, exchanged)


@pytest.mark.parametrize("kind", ["awq", "gptq, act-order", "W4A16, asymmetric", "float8 per channel"])
def test_headers_and_settings_out_of_anywhere(kind: str, tmp_path: Path) -> None:
    write(
        tmp_path, KINDS[kind][0], TinyModel(hidden=64, intermediate=64, heads=2, kv_heads=1, layers=1, vocab_size=400)
    )
    raw, settings = (tmp_path / FILE).read_bytes(), dict(KINDS[kind][0].config)
    start = 8 + int.from_bytes(raw[:8], "little")
    chance, outcomes = random.Random(4), set()
    for _ in range(40):
        header = json.loads(raw[8:start])
        for change in chance.sample(CHANGES, chance.randint(0, 2)):
            change(header, chance)
        changed = {chance.choice(list(settings)): chance.choice(VALUES)} if chance.random() < 0.5 else {}
        configure(tmp_path, quantization_config={**settings, **changed})
        text = json.dumps(header).encode()
        (tmp_path / FILE).write_bytes(len(text).to_bytes(8, "little") + text + raw[start:])
        try:
            load_model(open_checkpoint([tmp_path / FILE]))
            outcomes.add("read")
        except ModelError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}
