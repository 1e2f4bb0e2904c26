"""Prints how near an executor lies to the golden references: the figures of docs/model.md.

Usage: python -m tests.parity.report {reference,native} [MODEL ...]     models: smollm2 gemma3 qwen2 (default: all)
"""

import os
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from octavo.kv.spec import KVDtype
from tests.execution.driver import Driver
from tests.parity import test_native, test_reference
from tests.parity.golden import ALIASES, greedy_rows, texts
from tests.parity.scoring import open_model, teacher_force, token_logprobs

SUBJECTS = {"reference": (test_reference.build, KVDtype.FP32), "native": (test_native.build, KVDtype.FP16)}


def report(driver: Driver, model: str) -> None:
    """Greedy and long rows against both references, texts against float32."""
    for kind in ("greedy", "long"):
        scored = teacher_force(driver, test_native.quiet(greedy_rows(model, kind)))
        clear = [~row.ambiguous for row in scored.rows]
        wrong = len(scored.wrong_argmax([row.ids for row in scored.rows], clear))
        cells = [f"wrong argmax {wrong} of {np.concatenate(clear).sum()}"]
        for reference in ("f32", "llama"):
            d = scored.differences(reference)
            cells.append(f"{reference}: mean {d.mean():.6f} p99 {np.quantile(d, 0.99):.6f} max {d.max():.6f}")
        print(f"{model} {kind}: {', '.join(cells)}", flush=True)
    for text in texts(model).values():
        nll, expected = -token_logprobs(driver, text).mean(), -text.f32.mean()
        print(
            f"{model} {text.kind}: mean NLL {nll:.5f}, f32 {expected:.5f}, difference {nll - expected:+.5f}", flush=True
        )


def main(subject: str, *models: str) -> None:
    build, dtype = SUBJECTS[subject]
    for model in models or ALIASES:
        driver = open_model(model, build, tokens=test_native.LONGEST, dtype=dtype)
        report(driver, model)
        driver.executor.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
