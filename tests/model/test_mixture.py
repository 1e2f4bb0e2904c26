"""Families with experts: programs, where their weights stand, and what is refused."""

from collections.abc import Mapping
from math import prod

import pytest

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.model.cost import StepShape, cost, num_parameters
from octavo.model.describe import describe
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Add, Experts, Route, Routing, SigmoidScale
from octavo.model.registry import define_model
from octavo.model.sources import OnlyRow, Rows, Stacked, WeightSource

HIDDEN, EXPERTS, ACTIVE, INNER, MLP, SHARED, LAYERS = 64, 8, 2, 32, 96, 48, 4
CLASSES = {"mixtral": "MixtralForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}
GGUF_NAMES = {"mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe"}
FAMILIES = tuple(CLASSES)
QWEN = ("qwen2_moe", "qwen3_moe")
ROUTERS = {f"blk.{i}.ffn_gate_inp.weight": (EXPERTS, HIDDEN) for i in range(LAYERS)}
STACKS = {f"blk.{i}.ffn_{part}_exps.weight": () for i in range(LAYERS) for part in ("gate", "up", "down")}


def hf(family: str, shapes: Mapping[str, tuple[int, ...]] | None = None, **changes: object) -> CheckpointHeader:
    config: dict[str, object] = {
        "architectures": [CLASSES[family]],
        "vocab_size": 50,
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "num_experts_per_tok": ACTIVE,
        "tie_word_embeddings": True,
    }
    if family == "mixtral":
        config |= {"num_local_experts": EXPERTS}
    else:
        config |= {"num_experts": EXPERTS, "moe_intermediate_size": INNER, "norm_topk_prob": family == "qwen3_moe"}
    if family == "qwen2_moe":
        config |= {"shared_expert_intermediate_size": SHARED}
    config |= changes
    return CheckpointHeader("folder", Naming.HF, {k: v for k, v in config.items() if v is not None}, shapes or {})


def gguf(family: str, shapes: Mapping[str, tuple[int, ...]] | None = None, **changes: object) -> CheckpointHeader:
    own: dict[str, object] = {
        "block_count": LAYERS,
        "context_length": 1024,
        "embedding_length": HIDDEN,
        "feed_forward_length": MLP,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
        "expert_count": EXPERTS,
        "expert_used_count": ACTIVE,
    }
    if family != "mixtral":
        own |= {"expert_feed_forward_length": INNER}
    if family == "qwen2_moe":
        own |= {"expert_shared_feed_forward_length": SHARED}
    own |= {key.replace("__", "."): value for key, value in changes.items()}
    architecture = GGUF_NAMES[family]
    metadata = {f"{architecture}.{key}": value for key, value in own.items() if value is not None}
    biases = {f"blk.0.attn_{part}.bias": () for part in ("q", "k", "v") if family == "qwen2_moe"}
    tensors = {"token_embd.weight": (50, HIDDEN), **biases, **(ROUTERS | STACKS if shapes is None else shapes)}
    return CheckpointHeader("model.gguf", Naming.GGUF, {"general.architecture": architecture, **metadata}, tensors)


def only_experts(header: CheckpointHeader) -> list[Experts]:
    return [op for op in define_model(header).program.ops if isinstance(op, Experts)]


def routing_of(header: CheckpointHeader) -> set[Routing]:
    return {op.routing for op in define_model(header).program.ops if isinstance(op, Route)}


@pytest.mark.parametrize("family", FAMILIES)
def test_both_spellings_describe_one_program(family: str) -> None:
    in_gguf, in_hf = define_model(gguf(family)).program, define_model(hf(family)).program
    assert in_gguf.ops == in_hf.ops
    assert in_gguf.weights == in_hf.weights


@pytest.mark.parametrize("spell", [gguf, hf])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_has_a_source_of_its_own(family: str, spell) -> None:
    definition = define_model(spell(family))
    assert definition.sources.keys() == definition.program.weights.keys()
    assert len(set(definition.sources.values())) == len(definition.sources)


@pytest.mark.parametrize(("family", "inner"), [("mixtral", MLP), ("qwen2_moe", INNER), ("qwen3_moe", INNER)])
def test_every_layer_has_a_router_and_experts(family: str, inner: int) -> None:
    program = define_model(hf(family)).program
    layers = only_experts(hf(family))
    assert len(layers) == LAYERS
    for index, op in enumerate(layers):
        assert op.gate[3] == f"layers.{index}.mlp.experts.3.gate"
        assert [len(names) for names in (op.gate, op.up, op.down)] == [EXPERTS] * 3
        assert program.weights[op.up[0]].shape == (inner, HIDDEN)
        assert program.weights[op.down[0]].shape == (HIDDEN, inner)
    assert program.weights["layers.0.mlp.router"].shape == (EXPERTS, HIDDEN)
    assert "layers.0.mlp.gate" not in program.weights
    assert f"route(router, top {ACTIVE} of {EXPERTS}" in describe(program)


def test_routing_is_what_the_family_and_its_file_say() -> None:
    assert routing_of(hf("mixtral")) == routing_of(gguf("mixtral")) == {Routing.SHARE_OF_CHOSEN}
    assert routing_of(hf("qwen2_moe")) == routing_of(gguf("qwen2_moe")) == {Routing.SHARE_OF_ALL}
    assert routing_of(hf("qwen3_moe")) == routing_of(gguf("qwen3_moe")) == {Routing.SHARE_OF_CHOSEN}
    for family in QWEN:
        assert routing_of(hf(family, norm_topk_prob=None)) == {Routing.SHARE_OF_ALL}
        assert routing_of(hf(family, norm_topk_prob=True)) == {Routing.SHARE_OF_CHOSEN}
    assert routing_of(gguf("qwen3_moe", expert_weights_norm=False)) == {Routing.SHARE_OF_ALL}


def test_qwen2_moe_adds_an_expert_that_every_token_meets() -> None:
    program = define_model(hf("qwen2_moe")).program
    scales = [index for index, op in enumerate(program.ops) if isinstance(op, SigmoidScale)]
    assert len(scales) == LAYERS
    assert program.ops[scales[0] + 1] == Add(x="mixture", y="shared", out="mixture")
    assert program.weights["layers.0.mlp.shared.switch"].shape == (1, HIDDEN)
    assert program.weights["layers.0.mlp.shared.down"].shape == (HIDDEN, SHARED)
    in_file = gguf("qwen2_moe", {**ROUTERS, **STACKS, "blk.1.ffn_gate_inp_shexp.weight": (HIDDEN,)})
    assert define_model(in_file).sources["layers.1.mlp.shared.switch"] == WeightSource(
        "blk.1.ffn_gate_inp_shexp.weight", OnlyRow()
    )


@pytest.mark.parametrize("family", QWEN)
@pytest.mark.parametrize(
    ("keys", "sparse"),
    [({"mlp_only_layers": [0, 2]}, {1, 3}), ({"decoder_sparse_step": 2}, {1, 3}),
     ({"decoder_sparse_step": 2, "mlp_only_layers": [3]}, {1})],
)  # fmt: skip
def test_some_layers_have_an_mlp_instead(family: str, keys: dict[str, object], sparse: set[int]) -> None:
    program = define_model(hf(family, **keys)).program
    assert {i for i in range(LAYERS) if f"layers.{i}.mlp.router" in program.weights} == sparse
    assert {i for i in range(LAYERS) if f"layers.{i}.mlp.gate" in program.weights} == set(range(LAYERS)) - sparse
    assert program.weights["layers.0.mlp.gate"].shape == (MLP, HIDDEN)
    routers = {name: shape for name, shape in ROUTERS.items() if int(name.split(".")[1]) in sparse}
    assert define_model(gguf(family, {**routers, **STACKS})).program.ops == program.ops


def test_experts_stand_alone_stacked_or_with_gate_above_up() -> None:
    alone = define_model(hf("mixtral")).sources
    assert alone["layers.1.mlp.experts.5.up"].name == "model.layers.1.block_sparse_moe.experts.5.w3.weight"
    older = define_model(gguf("mixtral", ROUTERS)).sources
    assert older["layers.1.mlp.experts.5.up"] == WeightSource("blk.1.ffn_up.5.weight")
    newer = define_model(gguf("mixtral")).sources
    assert newer["layers.1.mlp.experts.5.up"] == WeightSource("blk.1.ffn_up_exps.weight", Stacked(5, EXPERTS))
    fused_names = ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")
    shapes = {f"model.layers.{i}.{name}": () for i in range(LAYERS) for name in fused_names}
    for family, inner in (("mixtral", MLP), ("qwen2_moe", INNER)):
        fused = define_model(hf(family, shapes)).sources
        gate_up = "model.layers.1.mlp.experts.gate_up_proj"
        assert fused["layers.1.mlp.router"].name == "model.layers.1.mlp.gate.weight"
        assert fused["layers.1.mlp.experts.5.gate"] == WeightSource(
            gate_up, Stacked(5, EXPERTS, Rows(0, inner, 2 * inner))
        )
        assert fused["layers.1.mlp.experts.5.up"] == WeightSource(
            gate_up, Stacked(5, EXPERTS, Rows(inner, 2 * inner, 2 * inner))
        )
        assert fused["layers.1.mlp.experts.5.down"] == WeightSource(
            "model.layers.1.mlp.experts.down_proj", Stacked(5, EXPERTS)
        )


def test_the_shapes_of_tensors_with_many_experts() -> None:
    assert WeightSource("w", Stacked(1, 8)).stored_shape((32, 64)) == (8, 32, 64)
    assert WeightSource("w", Stacked(1, 8, Rows(0, 32, 64))).stored_shape((32, 64)) == (8, 64, 64)
    assert WeightSource("w", OnlyRow()).stored_shape((1, 64)) == (64,)


def test_widths_that_older_files_leave_out() -> None:
    assert define_model(gguf("mixtral")).program.weights["layers.0.mlp.experts.0.up"].shape == (MLP, HIDDEN)
    older = gguf("qwen2_moe", expert_feed_forward_length=None, expert_shared_feed_forward_length=None)
    weights = define_model(older).program.weights
    assert weights["layers.0.mlp.experts.0.up"].shape == (MLP // ACTIVE, HIDDEN)
    assert weights["layers.0.mlp.shared.up"].shape == (MLP, HIDDEN)


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts"])
def test_either_name_of_the_number_of_experts(key: str) -> None:
    header = hf("qwen3_moe", **{"num_experts": None, key: 5})
    assert len(only_experts(header)[0].gate) == 5


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (gguf("mixtral", expert_gating_func=2), "expert_gating_func"),
        (gguf("qwen3_moe", expert_weights_scale=2.5), "expert_weights_scale"),
        (gguf("qwen3_moe", expert_group_count=4), "expert_group_count"),
        (gguf("qwen3_moe", expert_shared_count=1), "expert_shared_count"),
        (gguf("mixtral", expert_shared_count=1), "expert_shared_count"),
        (gguf("qwen2_moe", leading_dense_block_count=1), "leading_dense_block_count"),
        (hf("mixtral", hidden_act="gelu"), "hidden_act"),
        (hf("qwen2_moe", use_sliding_window=True), "use_sliding_window"),
        (hf("mixtral", attention_bias=True), "attention_bias"),
        (hf("qwen3_moe", n_routed_experts=8), "n_routed_experts"),
        (hf("qwen2_moe", layer_types=["sliding_attention"] * LAYERS), "layer_types"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(header: CheckpointHeader, key: str) -> None:
    with pytest.raises(UnsupportedModelError, match=key):
        define_model(header)


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (hf("mixtral", num_experts_per_tok=9), "num_experts_per_tok"),
        (hf("qwen2_moe", num_experts=None), "num_local_experts"),
        (hf("qwen2_moe", mlp_only_layers=["first"]), "mlp_only_layers"),
        (gguf("mixtral", expert_used_count=None), "expert_used_count"),
        (gguf("mixtral", expert_count=-1), "expert_count"),
    ],
)
def test_what_is_absurd_is_told(header: CheckpointHeader, key: str) -> None:
    with pytest.raises(ModelFileError, match=key):
        define_model(header)


def test_a_step_reads_the_experts_that_its_tokens_are_expected_to_meet() -> None:
    program = define_model(hf("mixtral")).program
    op = next(op for op in program.ops if isinstance(op, Experts))
    one_expert = 3 * MLP * HIDDEN

    def read(tokens: int) -> int:
        step = StepShape(scheduled=(tokens,), contexts=(tokens,), rows=1)
        sizes = {name: prod(weight.shape) for name, weight in program.weights.items()}
        none = dict.fromkeys(sizes, 0)
        return cost(op, program, step, sizes).bytes - cost(op, program, step, none).bytes

    assert read(1) == ACTIVE * one_expert
    assert read(2) == pytest.approx(one_expert * (EXPERTS - EXPERTS * (1 - ACTIVE / EXPERTS) ** 2), abs=1)
    assert read(1000) == EXPERTS * one_expert
    flops = cost(op, program, StepShape((3,), (3,), 1), dict.fromkeys(program.weights, 0)).flops
    assert flops == 3 * ACTIVE * (2 * one_expert + 5 * MLP + 2 * HIDDEN)
    assert num_parameters(program) > LAYERS * EXPERTS * one_expert
