"""Programs with inputs, and executors that borrow of another: what is kept, what is shared, what is refused."""

from pathlib import Path

import numpy as np
import pytest

from octavo.execution.draft_head import LoadedHead
from octavo.execution.native import NativeExecutor
from octavo.execution.weights import load_model
from octavo.model.program import Program
from tests.draft_heads import RandomHead, config, read_head, tensors, write_head
from tests.execution.driver import Driver, layout_for
from tests.execution.test_weights import open_tiny

SIZES = {"isa": "auto", "max_tokens": 8, "max_rows": 8, "max_seqs": 2, "max_positions": 32}


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedHead:
    folder = write_head(tmp_path / "head", config(RandomHead()), tensors(RandomHead()))
    return read_head(folder, *load_model(open_tiny(tmp_path)))


def target_of(loaded: LoadedHead) -> NativeExecutor:
    return NativeExecutor(loaded.target, loaded.target_weights, layout(loaded.target), threads=2, **SIZES)


def layout(program: Program):
    return layout_for(program, tokens=32, sequences=2)


def head_of(loaded: LoadedHead, target: NativeExecutor) -> NativeExecutor:
    return NativeExecutor(
        loaded.program, loaded.weights, layout(loaded.program), threads=None, beside=target, borrowed=loaded.borrowed,
        **SIZES,
    )  # fmt: skip


def run(executor: NativeExecutor, hidden: np.ndarray, order: list[int]) -> dict[int, bytes]:
    """Two sequences of three tokens in either order; logits of each one's last."""
    driver = Driver(executor)
    executor.fill("hidden", np.concatenate([hidden[index] for index in order]))
    logits = driver.step([(driver.start([1, 2, 3 + index]), 3) for index in order])
    return {index: row.tobytes() for index, row in zip(order, logits, strict=True)}


def test_rows_have_the_same_bits_wherever_they_stand(loaded: LoadedHead) -> None:
    head = head_of(loaded, target_of(loaded))
    hidden = np.random.default_rng(0).standard_normal((2, 3, 64), dtype=np.float32)
    both = run(head, hidden, [0, 1])
    assert run(head, hidden, [1, 0]) == both
    assert run(head, hidden, [0]) | run(head, hidden, [1]) == both


def test_borrowed_matrices_give_the_bits_of_own_ones(loaded: LoadedHead) -> None:
    own = NativeExecutor(loaded.program, loaded.weights, layout(loaded.program), threads=1, **SIZES)
    target = target_of(loaded)
    head = head_of(loaded, target)
    hidden = np.random.default_rng(0).standard_normal((2, 3, 64), dtype=np.float32)
    assert run(head, hidden, [0, 1]) == run(own, hidden, [0, 1])
    table = 512 * 64 * 4
    assert own.num_bytes["weights"] - head.num_bytes["weights"] == 2 * table  # embedding and output matrix


def test_the_lender_may_go_first(loaded: LoadedHead) -> None:
    target = target_of(loaded)
    head = head_of(loaded, target)
    hidden = np.random.default_rng(0).standard_normal((2, 3, 64), dtype=np.float32)
    before = run(head, hidden, [0, 1])
    target.close()
    del target
    assert run(head, hidden, [0, 1]) == before


def test_what_is_refused(loaded: LoadedHead) -> None:
    target = target_of(loaded)
    head = head_of(loaded, target)
    with pytest.raises(ValueError, match="rows, second dimension, has 32 entries, expected 64"):
        head.fill("hidden", np.zeros((3, 32), np.float32))
    with pytest.raises(ValueError, match="9 rows for a buffer of at most 8 tokens"):
        head.fill("hidden", np.zeros((9, 64), np.float32))
    with pytest.raises(KeyError):
        target.fill("hidden", np.zeros((3, 64), np.float32))
    for threads, beside in ((None, None), (1, target)):
        with pytest.raises(ValueError, match="an executor has threads of its own or another's"):
            NativeExecutor(
                loaded.program, loaded.weights, layout(loaded.program), threads=threads, beside=beside, **SIZES
            )
    with pytest.raises(ValueError, match="there is no executor beside this one to borrow from"):
        NativeExecutor(
            loaded.program, loaded.weights, layout(loaded.program), threads=1, borrowed={"embed": "embed"}, **SIZES
        )
