"""What EAGLE heads cost beside a model: processor time of the model's step, of a chain's row, of taking in what came.

Usage: python benchmarks/eagle_cost.py MODEL.gguf [--context 512] [--requests 1 4 16] [--draft-vocab 32000]

Heads have the model's width, heads and MLP, and random weights in BF16: what they guess is of no use, what they cost is
what trained ones of that shape cost. One thread; times are of this thread, the median of 15 rounds.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from octavo.decoding.speculation.rows import decode_rows
from octavo.execution.loader import open_checkpoint
from octavo.execution.native import NativeExecutor
from octavo.execution.protocols import StepBatch
from octavo.execution.quant import TensorType
from octavo.execution.weights import LoadedWeight, load_model
from octavo.kv.spec import AttentionSpec, KVDtype, KVLayout, lay_out
from octavo.model.draft_head import HIDDEN, HeadDefinition
from octavo.model.features import hidden_size
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Attention, Program, Weight
from octavo.model.registry import define_head

ROUNDS, BLOCK_SIZE = 15, 16


def header(target: Program, layout: str, draft_vocab: int) -> CheckpointHeader:
    """Of a head shaped like the target's layers."""
    width, mlp = hidden_size(target), target.weights["layers.0.mlp.up"].shape[0]
    heads = next(op.heads for op in target.ops if isinstance(op, Attention))
    config = {
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_attention_heads": heads,
        "num_key_value_heads": target.cache_layers[0].kv_heads,
        "head_dim": target.cache_layers[0].head_dim,
        "num_hidden_layers": 1,
        "max_position_embeddings": target.max_positions,
        "rms_norm_eps": 1e-5,
        "vocab_size": target.vocab_size,
    }
    if layout == "eagle":
        return CheckpointHeader(layout, Naming.HF, config, {"fc.weight": (width, 2 * width)})
    shapes = {
        "fc.weight": (width, 3 * width),
        "midlayer.hidden_norm.weight": (width,),
        "lm_head.weight": (draft_vocab, width),
    }
    config["draft_vocab_size"] = draft_vocab
    return CheckpointHeader(layout, Naming.HF, config, shapes, tables={"d2t": (draft_vocab,)})


def random_weight(weight: Weight) -> LoadedWeight:
    values = np.random.default_rng(0).standard_normal(weight.shape, dtype=np.float32) / np.float32(
        weight.shape[-1] ** 0.5
    )
    if len(weight.shape) == 1:
        return LoadedWeight.of(TensorType.F32, weight.shape, values.view(np.uint8))
    raw = (values.view(np.uint32) >> 16).astype(np.uint16)
    return LoadedWeight.of(TensorType.BF16, weight.shape, raw.reshape(-1).view(np.uint8))


def specs(program: Program) -> tuple[AttentionSpec, ...]:
    return tuple(
        AttentionSpec(num_kv_heads=layer.kv_heads, head_dim=layer.head_dim, window=layer.window)
        for layer in program.cache_layers
    )


class Bench:
    """A target and a head beside it, with requests of one length."""

    def __init__(
        self,
        target: Program,
        weights: dict[str, LoadedWeight],
        head: HeadDefinition | None,
        requests: int,
        context: int,
    ) -> None:
        blocks = requests * -(-(context + 16) // BLOCK_SIZE)
        more = () if head is None else specs(head.program)
        layout = lay_out(specs(target), num_blocks=1, block_size=BLOCK_SIZE, dtype=KVDtype.FP16, beside=more)
        self.layout: KVLayout = lay_out(
            specs(target), num_blocks=1 + blocks * len(layout.groups), block_size=BLOCK_SIZE, dtype=KVDtype.FP16,
            beside=more,
        )  # fmt: skip
        executor = partial(
            NativeExecutor, isa="auto", max_tokens=64, max_rows=64, max_seqs=64, max_positions=context + 16
        )
        program = target if head is None else head.target
        own = {name: random_weight(w) for name, w in program.weights.items() if name not in weights}
        self.target = executor(program, weights | own, self.layout, threads=1)
        self.requests, self.context = requests, context
        if head is not None:
            lent = {name: weights[theirs] for name, theirs in head.borrowed.items()}
            drawn = {name: random_weight(w) for name, w in head.program.weights.items() if name not in lent}
            self.head = executor(
                head.program, drawn | lent, self.layout, threads=None, beside=self.target, borrowed=head.borrowed
            )
            self.width = head.program.buffers[HIDDEN].width

    def rows(self) -> StepBatch:
        """The next token of every request."""
        per_request = -(-(self.context + 16) // BLOCK_SIZE)
        groups = len(self.layout.groups)
        tables = 1 + np.arange(groups * self.requests * per_request, dtype=np.int32)
        positions = np.full(self.requests, self.context, np.int32)
        token_ids = np.arange(self.requests, dtype=np.int32) + 100
        return decode_rows(token_ids, positions, tables.reshape(groups, self.requests, per_request), BLOCK_SIZE)

    def target_ms(self) -> float:
        batch = self.rows()
        return median_ms(lambda: self.target.run(batch))

    def chain_row_ms(self) -> float:
        """Of all requests: the row, and the likeliest token."""
        batch, hidden = self.rows(), np.ones((self.requests, self.width), np.float32)

        def run() -> None:
            self.head.fill(HIDDEN, hidden)
            self.head.run(batch).argmax(axis=1)

        return median_ms(run)

    def taking_in_ms(self) -> float:
        """One row per request, without logits."""
        batch, hidden = self.rows(), np.ones((self.requests, self.width), np.float32)
        batch.logit_rows = np.empty(0, np.int32)

        def run() -> None:
            self.head.fill(HIDDEN, hidden)
            self.head.run(batch)

        return median_ms(run)


def median_ms(run: Callable[[], object]) -> float:
    run()
    times = []
    for _ in range(ROUNDS):
        begun = time.thread_time()
        run()
        times.append(1000 * (time.thread_time() - begun))
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--draft-vocab", type=int, default=32000)
    arguments = parser.parse_args()
    target, weights = load_model(open_checkpoint([arguments.model]))
    print("| layout | requests | model's step, ms | with features | row of a chain | taking in a row |")
    print("|---|---|---|---|---|---|")
    for requests in arguments.requests:
        plain = Bench(target, weights, None, requests, arguments.context).target_ms()
        for layout in ("eagle", "eagle3"):
            head = define_head(header(target, layout, arguments.draft_vocab), target)
            bench = Bench(target, weights, head, requests, arguments.context)
            figures = (plain, bench.target_ms(), bench.chain_row_ms(), bench.taking_in_ms())
            print(f"| {layout} | {requests} | {' | '.join(f'{figure:.2f}' for figure in figures)} |", flush=True)


if __name__ == "__main__":
    main()
