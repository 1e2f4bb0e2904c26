"""Draft heads of both layouts against the formulas of their papers, in torch and double precision: in chunks over paged
KV, and as a chain that goes on from its own hidden states.

Weights and KV are float32. Tolerance: 2e-5 of the largest value of a tensor, about 100 roundings of float32; the
arithmetic of both executors is float32 throughout.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from octavo.execution.draft_head import LoadedHead  # noqa: E402  behind the skip
from octavo.execution.loader import Checkpoint  # noqa: E402
from octavo.execution.native import NativeExecutor  # noqa: E402
from octavo.execution.protocols import DraftExecutor, Float32  # noqa: E402
from octavo.execution.reference import ReferenceExecutor  # noqa: E402
from octavo.execution.weights import load_model  # noqa: E402
from tests.draft_heads import Arrays, RandomHead, config, read_head, tensors, write_head  # noqa: E402
from tests.execution.driver import Driver, Live, layout_for  # noqa: E402
from tests.execution.test_weights import open_tiny  # noqa: E402
from tests.parity import eagle_oracle  # noqa: E402

TOKENS, CHAIN, VOCAB = 70, 4, 512
TOLERANCE = 2e-5

HEADS = {
    "eagle": RandomHead(),
    "eagle, biases, own tables": RandomHead(fc_bias=True, qkv_bias=True, own_embedding=True, own_output=True),
    "eagle, two layers": RandomHead(layers=2, kv_heads=4),
    "eagle3": RandomHead(layout="eagle3", draft_vocab=200),
    "eagle3, taps given": RandomHead(layout="eagle3", draft_vocab=96, taps=(0, 3, 6), midlayer=False, fc_bias=True),
    "eagle3, norm first": RandomHead(layout="eagle3", draft_vocab=200, norm_before_residual=True, qkv_bias=True),
    "eagle3, narrower": RandomHead(layout="eagle3", hidden=32, draft_vocab=200, own_embedding=True),
    "eagle3, the target's tables": RandomHead(layout="eagle3"),
}
TARGETS = {
    "llama": {"architecture": "llama", "layers": 6},
    "qwen2": {"architecture": "qwen2", "layers": 6},
}


@dataclass
class Case:
    """A head beside its target, and both as arrays for the oracle."""

    spec: RandomHead
    arrays: Arrays
    target: Checkpoint
    loaded: LoadedHead

    def of_oracle(self, token_ids: list[int], hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Hidden states and logits of all rows by the oracle."""
        t = {name: torch.from_numpy(array).double() for name, array in self.arrays.items()}
        embed = t.get("embed_tokens.weight", self._of_target("model.embed_tokens.weight"))
        tied = "lm_head.weight" not in self.target.tensors
        output = t.get("lm_head.weight", self._of_target("model.embed_tokens.weight" if tied else "lm_head.weight"))
        head = {"eagle": eagle_oracle.eagle, "eagle3": eagle_oracle.eagle3}[self.spec.layout]
        states = torch.from_numpy(np.array(hidden, np.float64))
        x, logits = head(t, config(self.spec), embed, output, torch.tensor(token_ids), states)
        return x.numpy(), logits.numpy()

    def _of_target(self, name: str) -> "torch.Tensor":
        return torch.from_numpy(self.target.float32(name).copy()).double()


@pytest.fixture
def case(tmp_path: Path) -> Callable[[str, str], Case]:
    """A head and its target by name."""

    def make(head: str, target: str) -> Case:
        spec, model = HEADS[head], open_tiny(tmp_path, "safetensors", **TARGETS[target])
        arrays = tensors(spec)
        folder = write_head(tmp_path / "head", config(spec), arrays)
        return Case(spec, arrays, model, read_head(folder, *load_model(model)))

    return make


def reference(loaded: LoadedHead) -> DraftExecutor:
    layout = layout_for(loaded.program, tokens=TOKENS + CHAIN)
    return ReferenceExecutor(loaded.program, loaded.weights, layout, max_rows=TOKENS)


def native(loaded: LoadedHead) -> DraftExecutor:
    """The head beside its target, whose matrices it borrows."""
    sizes = {"isa": "auto", "max_tokens": TOKENS, "max_rows": TOKENS, "max_seqs": 2, "max_positions": 128}
    layout = layout_for(loaded.target, tokens=TOKENS)
    target = NativeExecutor(loaded.target, loaded.target_weights, layout, threads=2, **sizes)
    layout = layout_for(loaded.program, tokens=TOKENS + CHAIN)
    head = NativeExecutor(
        loaded.program, loaded.weights, layout, threads=None, beside=target, borrowed=loaded.borrowed, **sizes
    )
    own = sum(weight.raw.nbytes for name, weight in loaded.weights.items() if name not in loaded.borrowed)
    assert head.num_bytes["weights"] < own + 200_000  # rotary tables and padding, but no borrowed matrix
    return head


EXECUTORS = {"reference": reference, "native": native}


def some_tokens(count: int) -> list[int]:
    return np.random.default_rng(5).integers(0, VOCAB, count).tolist()


def some_hidden(count: int, width: int) -> Float32:
    return np.random.default_rng(6).standard_normal((count, width), dtype=np.float32)


def run(driver: Driver, live: Live, hidden: Float32) -> tuple[Float32, Float32]:
    """Runs the next tokens of a sequence, one for each row of hidden states; new hidden states and logits of all."""
    executor: DraftExecutor = driver.executor
    batch = driver.batch([(live, len(hidden))])
    batch.logit_rows = np.arange(len(hidden), dtype=np.int32)
    executor.fill("hidden", hidden)
    logits = executor.run(batch).copy()
    live.computed += len(hidden)
    return executor.output("hidden").copy(), logits


def assert_close(got: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("head", HEADS)
def test_a_head_computes_its_formulas(head: str, target: str, executor: str, case) -> None:
    made = case(head, target)
    token_ids, hidden = some_tokens(TOKENS), some_hidden(TOKENS, made.spec.hidden)
    driver = Driver(EXECUTORS[executor](made.loaded))
    live = driver.start(token_ids)
    pieces = [run(driver, live, hidden[start : start + size]) for start, size in chunks()]
    x, logits = made.of_oracle(token_ids, hidden)
    assert_close(np.concatenate([piece[0] for piece in pieces]), x)
    assert_close(np.concatenate([piece[1] for piece in pieces]), logits)


def chunks() -> Iterator[tuple[int, int]]:
    """Across borders of blocks, and single rows."""
    start = 0
    for size in (33, 1, 16, 1, 1, TOKENS - 52):
        yield start, size
        start += size


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("head", HEADS)
def test_a_chain_goes_on_from_its_own_hidden_states(head: str, executor: str, case) -> None:
    made = case(head, "llama")
    token_ids, hidden = some_tokens(20 + CHAIN), some_hidden(20, made.spec.hidden)
    driver = Driver(EXECUTORS[executor](made.loaded))
    live = driver.start(token_ids)
    x, logits = run(driver, live, hidden)
    for step in range(CHAIN):
        expected_x, expected_logits = made.of_oracle(token_ids[: 20 + step], hidden)
        assert_close(x[-1:], expected_x[-1:])
        assert_close(logits[-1:], expected_logits[-1:])
        hidden = np.concatenate((hidden, x[-1:]))
        x, logits = run(driver, live, x[-1:])


@pytest.mark.filterwarnings("default")  # what other libraries warn of is not ours to mend
@pytest.mark.parametrize("executor", ["reference", "native"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("head", [name for name in HEADS if "narrower" not in name])
def test_features_are_hidden_states_of_the_target(head: str, target: str, executor: str, case) -> None:
    """As transformers numbers them: what stands behind each layer, the last of all after the norm."""
    made, token_ids = case(head, target), some_tokens(TOKENS)
    got, _ = target_outputs(made.loaded, executor, token_ids)
    states = hidden_states(made.target, token_ids)
    if made.spec.layout == "eagle":
        assert_close(got, states[-1].numpy())
        return
    layers = TARGETS[target]["layers"]
    taps = made.spec.taps or (2, layers // 2, layers - 3)
    t = {name: torch.from_numpy(array).double() for name, array in made.arrays.items()}
    inner = [states[tap] for tap in taps]
    if layers in taps:  # before the norm, which transformers does not show: undone by hand
        inner[taps.index(layers)] = last_stream(made.target, token_ids)
    assert_close(got, eagle_oracle.fused(t, inner).numpy())


def target_outputs(loaded: LoadedHead, executor: str, token_ids: list[int]) -> tuple[Float32, Float32]:
    """Features of all tokens, and logits of the last."""
    layout = layout_for(loaded.target, tokens=TOKENS)
    if executor == "reference":
        target: DraftExecutor = ReferenceExecutor(loaded.target, loaded.target_weights, layout)
    else:
        target = NativeExecutor(
            loaded.target, loaded.target_weights, layout, threads=1, isa="auto", max_tokens=TOKENS, max_rows=1,
            max_seqs=1, max_positions=128,
        )  # fmt: skip
    driver = Driver(target)
    logits = driver.step([(driver.start(token_ids), len(token_ids))])
    return target.output("features").copy(), logits


def transformers_model(checkpoint: Checkpoint):
    transformers = pytest.importorskip("transformers")
    folder = next(iter(checkpoint.tensors.values())).file.parent
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).model


def hidden_states(checkpoint: Checkpoint, token_ids: list[int]) -> list["torch.Tensor"]:
    with torch.no_grad():
        found = transformers_model(checkpoint)(torch.tensor([token_ids]), output_hidden_states=True).hidden_states
    return [states[0] for states in found]


def last_stream(checkpoint: Checkpoint, token_ids: list[int]) -> "torch.Tensor":
    """What the last layer leaves, before the norm."""
    seen: list[torch.Tensor] = []
    model = transformers_model(checkpoint)
    model.norm.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0][0]))
    with torch.no_grad():
        model(torch.tensor([token_ids]))
    return seen[0]


@pytest.mark.parametrize("head", ["eagle", "eagle3", "eagle3, taps given"])
@pytest.mark.parametrize("target", TARGETS)
def test_features_change_no_bit_of_the_target(head: str, target: str, case) -> None:
    made, token_ids = case(head, target), some_tokens(TOKENS)
    program, weights = load_model(made.target)
    plain = NativeExecutor(
        program, weights, layout_for(program, tokens=TOKENS), threads=1, isa="auto", max_tokens=TOKENS, max_rows=1,
        max_seqs=1, max_positions=128,
    )  # fmt: skip
    driver = Driver(plain)
    expected = driver.step([(driver.start(token_ids), TOKENS)])
    _, logits = target_outputs(made.loaded, "native", token_ids)
    assert logits.tobytes() == expected.tobytes()
