"""Routers and experts of the native core: what they compute, to the bit, whoever else is in the step."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from octavo.execution.native import NativeExecutor
from octavo.execution.protocols import Float32
from octavo.execution.quant import NATIVE_TYPES, TensorType, quantize
from octavo.execution.reference.routing import route
from octavo.execution.weights import LoadedWeight, load_model
from octavo.model.program import Activation, Experts, GatedActivation, Linear, Op, Route, Routing, SigmoidScale
from tests.execution.driver import Driver, layout_for
from tests.execution.native.rig import DEFAULT, ISAS, OpRig, Setting, bits
from tests.execution.test_weights import open_tiny

EXPERTS, TOP_K = 6, 3
PARTS = ("gate", "up", "down")


def noise(*shape: int, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def same_bits(got: Float32, want: Float32) -> None:
    np.testing.assert_array_equal(bits(got), bits(want))


# --- router -----------------------------------------------------------------------------------------------------


def routed(
    logits: Float32, top_k: int, routing: Routing = Routing.SHARE_OF_CHOSEN, setting: Setting = DEFAULT
) -> tuple[np.ndarray, Float32]:
    op = Route(logits="logits", out="routes", top_k=top_k, routing=routing)
    out = OpRig({"logits": logits}, [op], extra_buffers={"routes": 2 * top_k}).run("routes", setting)
    return out[:, :top_k].astype(np.int64), out[:, top_k:]


@pytest.mark.parametrize("routing", Routing)
@pytest.mark.parametrize(("experts", "top_k"), [(2, 1), (8, 2), (60, 4), (128, 8), (130, 130)])
def test_routes_are_those_of_the_reference(routing: Routing, experts: int, top_k: int) -> None:
    logits = noise(40, experts, seed=experts) * 3
    ids, weights = routed(logits, top_k, routing)
    expected_ids, expected = route(logits, top_k, routing)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    total = weights.sum(axis=1)
    if routing is Routing.SHARE_OF_CHOSEN or top_k == experts:
        np.testing.assert_allclose(total, 1, rtol=1e-5)
    else:
        assert (total < 1).all()


@pytest.mark.parametrize("isa", ISAS)
def test_ties_go_to_the_lower_id(isa: str) -> None:
    logits = np.array([[1, 2, 2, 1, 2], [0, 0, 0, 0, 0], [-1, -1, 5, -1, -1], [-0.0, 0.0, 0.0, -0.0, 0.0]], np.float32)
    ids, weights = routed(logits, 3, setting=Setting(isa=isa))
    assert ids.tolist() == [[1, 2, 4], [0, 1, 2], [2, 0, 1], [0, 1, 2]]
    same_bits(weights[1], np.full(3, np.float32(1) / np.float32(3), np.float32))


def test_what_is_no_number_is_chosen_and_spoils_its_row_alone() -> None:
    logits = np.array([[1, np.nan, 3, 2], [1, 0, 3, 2], [np.inf, 1, 2, 3], [np.nan] * 4, [-np.inf] * 4], np.float32)
    for routing in Routing:
        ids, weights = routed(logits, 2, routing)
        assert ids.tolist() == [[1, 2], [2, 3], [0, 3], [0, 1], [0, 1]]
        assert np.isfinite(weights).all(axis=1).tolist() == [False, True, False, False, False]


@pytest.mark.parametrize("routing", Routing)
def test_every_path_gives_the_bits_of_one_row(routing: Routing) -> None:
    logits = noise(33, 70) * 2
    expected = routed(logits, 5, routing, Setting(threads=1, isa="portable"))
    for setting in (Setting(threads, isa) for threads in (1, 3) for isa in ISAS):
        for got, want in zip(routed(logits, 5, routing, setting), expected, strict=True):
            np.testing.assert_array_equal(got, want)
    alone = [routed(logits[r : r + 1], 5, routing)[1][0] for r in range(33)]
    same_bits(np.array(alone), expected[1])


def test_a_factor_between_0_and_1() -> None:
    x, gate = noise(7, 40), np.array([[-200], [-3], [-0.0], [0.5], [3], [20], [200]], np.float32)
    got = OpRig({"x": x, "gate": gate}, [SigmoidScale(x="x", gate="gate", out="x")]).run("x")
    np.testing.assert_allclose(got, x / (1 + np.exp(-gate.astype(np.float64))), rtol=1e-6, atol=1e-30)


# --- experts ----------------------------------------------------------------------------------------------------


def names(part: str) -> tuple[str, ...]:
    return tuple(f"{e}.{part}" for e in range(EXPERTS))


def matrices(tensor_types: dict[str, TensorType], width: int, inner: int) -> dict[str, LoadedWeight]:
    found = {}
    for seed, (part, tensor_type) in enumerate(tensor_types.items()):
        shape = (width, inner) if part == "down" else (inner, width)
        for expert, name in enumerate(names(part)):
            raw = quantize(tensor_type, noise(*shape, seed=100 * seed + expert) / np.float32(np.sqrt(shape[1])))
            found[name] = LoadedWeight.of(tensor_type, shape, raw)
    return found


def some_routes(rows: int, seed: int = 0) -> Float32:
    """Each row meets others, in no order; the experts' shares of the rows differ."""
    rng = np.random.default_rng(seed)
    popularity = 1.5 ** np.arange(EXPERTS) / (1.5 ** np.arange(EXPERTS)).sum()
    ids = np.array([rng.choice(EXPERTS, TOP_K, replace=False, p=popularity) for _ in range(rows)])
    return np.concatenate((ids, rng.random((rows, TOP_K))), axis=1).astype(np.float32)


class Mixture:
    """A layer of experts with weights in given formats."""

    def __init__(self, tensor_types: dict[str, TensorType], width: int, inner: int) -> None:
        self.weights = matrices(tensor_types, width, inner)
        self.width, self.inner = width, inner

    def run(self, x: Float32, routes: Float32, setting: Setting = DEFAULT) -> Float32:
        op = Experts("x", "routes", "y", names("gate"), names("up"), names("down"), Activation.SILU)
        rig = OpRig({"x": x, "routes": routes}, [op], self.weights, {"y": self.width})
        return rig.run("y", setting)

    def by_linears(self, x: Float32, routes: Float32) -> Float32:
        """What `Experts` is defined to be: each expert as an MLP over all rows, then the sums in the routes' order."""
        parts = np.stack([self._expert(x, e) for e in range(EXPERTS)])
        ids, weights = routes[:, :TOP_K].astype(np.int64), routes[:, TOP_K:]
        rows = np.arange(len(x))
        total = weights[:, 0, None] * parts[ids[:, 0], rows]
        for place in range(1, TOP_K):
            total = total + weights[:, place, None] * parts[ids[:, place], rows]
        return total

    def _expert(self, x: Float32, expert: int) -> Float32:
        gate, up, down = (names(part)[expert] for part in PARTS)
        ops: list[Op] = [
            Linear(x="x", out="g", weight=gate),
            Linear(x="x", out="u", weight=up),
            GatedActivation(gate="g", up="u", out="g", activation=Activation.SILU),
            Linear(x="g", out="y", weight=down),
        ]
        own = {name: self.weights[name] for name in (gate, up, down)}
        return OpRig({"x": x}, ops, own, {"g": self.inner, "u": self.inner, "y": self.width}).run("y")


def equal_types() -> Iterator[dict[str, TensorType]]:
    for tensor_type in sorted(NATIVE_TYPES, key=lambda t: t.ggml_id):
        yield dict.fromkeys(PARTS, tensor_type)


MIXED = [
    {"gate": TensorType.Q4_K, "up": TensorType.Q4_K, "down": TensorType.Q6_K},
    {"gate": TensorType.F16, "up": TensorType.Q8_0, "down": TensorType.F32},
    {"gate": TensorType.Q4_0, "up": TensorType.BF16, "down": TensorType.Q5_1},
]


@pytest.mark.parametrize(
    "types", [*equal_types(), *MIXED], ids=lambda t: "+".join(dict.fromkeys(v.name for v in t.values()))
)
def test_experts_are_mlps_added_in_the_order_of_the_route(types: dict[str, TensorType]) -> None:
    mixture = Mixture(types, 256, 256)
    x, routes = noise(37, 256), some_routes(37)
    same_bits(mixture.run(x, routes), mixture.by_linears(x, routes))


@pytest.mark.parametrize("types", MIXED, ids=("k-quants", "floats", "both"))
def test_company_threads_and_instruction_sets_change_no_bit(types: dict[str, TensorType]) -> None:
    mixture = Mixture(types, 256, 256)
    x, routes = noise(150, 256), some_routes(150)
    expected = mixture.run(x, routes, Setting(threads=1, isa="portable"))
    for setting in (Setting(threads, isa) for threads in (1, 2, 3) for isa in ISAS):
        same_bits(mixture.run(x, routes, setting), expected)
    for rows in ([5], [0, 149], list(range(60, 64)), list(range(17))):
        same_bits(mixture.run(x[rows], routes[rows]), expected[rows])


def test_widths_that_are_no_multiples_of_anything() -> None:
    mixture = Mixture(dict.fromkeys(PARTS, TensorType.F32), 36, 52)
    x, routes = noise(9, 36), some_routes(9)
    same_bits(mixture.run(x, routes), mixture.by_linears(x, routes))


def test_all_rows_at_one_expert_and_more_rows_than_a_block() -> None:
    """No expert has a capacity; beyond a block of rows, seats are given anew."""
    mixture = Mixture(dict.fromkeys(PARTS, TensorType.Q8_0), 64, 32)
    x, routes = noise(1700, 64), some_routes(1700)
    routes[:900, :TOP_K] = [4, 0, 5]
    got = mixture.run(x, routes)
    for rows in ([0, 1, 899], [900, 1200], [1699]):
        same_bits(got[rows], mixture.run(x[rows], routes[rows]))
    same_bits(got, mixture.by_linears(x, routes))


def test_the_order_of_a_route_is_the_order_of_its_sum() -> None:
    mixture = Mixture(dict.fromkeys(PARTS, TensorType.F32), 64, 64)
    x, routes = noise(50, 64) * 10, some_routes(50)
    other = routes[:, [2, 0, 1, 5, 3, 4]]
    forwards, otherwise = mixture.run(x, routes), mixture.run(x, other)
    np.testing.assert_allclose(forwards, otherwise, rtol=1e-3, atol=1e-3)
    assert (bits(forwards) != bits(otherwise)).any()


def test_a_row_of_nan_stays_alone() -> None:
    mixture = Mixture(dict.fromkeys(PARTS, TensorType.Q4_0), 64, 64)
    x, routes = noise(12, 64), some_routes(12)
    expected = mixture.run(x, routes)
    x[3], routes[7, TOP_K:] = np.nan, np.nan
    got = mixture.run(x, routes)
    kept = [r for r in range(12) if r not in (3, 7)]
    same_bits(got[kept], expected[kept])
    assert np.isnan(got[[3, 7]]).all()


# --- how often they have been met -------------------------------------------------------------------------------


def test_meetings_are_counted_by_layer_and_expert(tmp_path: Path) -> None:
    program, weights = load_model(
        open_tiny(tmp_path, architecture="qwen3_moe", experts=5, active_experts=2, layers=3, dense_layers=(1,))
    )
    layout = layout_for(program, tokens=40)
    limits = {"max_tokens": 40, "max_rows": 4, "max_seqs": 1, "max_positions": 40}
    native = NativeExecutor(program, weights, layout, threads=2, isa="auto", **limits)
    assert native.expert_loads() == {0: [0] * 5, 2: [0] * 5}
    driver = Driver(native)
    live = driver.start(range(3, 40))
    driver.step([(live, 36)])
    native.logits(np.array([3, 4], np.int32))  # rows asked for again meet no expert
    driver.step([(live, 1)])
    loads = native.expert_loads()
    assert [sum(met) for met in loads.values()] == [37 * 2] * 2
    assert max(loads[2]) < 37
    assert list(native.expert_totals()) == [(layer, 5, 74, max(met)) for layer, met in loads.items()]
    native.close()
    assert native.expert_loads() == {}
    assert not list(native.expert_totals())
