"""Draft heads from their files: what is refused, and in which words; what is borrowed of the target."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import ModelError, ModelFileError, UnsupportedModelError
from octavo.execution.draft_head import LoadedHead
from octavo.execution.weights import load_model
from octavo.model.describe import describe
from octavo.model.program import Attention, Embed, Logits
from tests.draft_heads import Arrays, RandomHead, config, read_head, tensors, write_head
from tests.execution.test_weights import open_tiny

EAGLE, EAGLE3 = RandomHead(), RandomHead(layout="eagle3", draft_vocab=200)
Load = Callable[..., LoadedHead]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a head whose settings or tensors are changed, for a tiny llama of six layers."""

    def loading(head: RandomHead, *, arrays: Arrays | None = None, without: str = "", **settings: object) -> LoadedHead:
        target = load_model(open_tiny(tmp_path, layers=6))
        kept = {name: array for name, array in (tensors(head) | (arrays or {})).items() if name != without}
        return read_head(write_head(tmp_path / "head", config(head) | settings, kept), *target)

    return loading


def test_a_head_of_the_first_layout_borrows_what_it_lacks(load: Load) -> None:
    head = load(EAGLE)
    assert head.borrowed == {"embed": "embed", "output": "embed"}  # the target ties them
    assert head.weights["output"] is head.target_weights["embed"]
    assert head.program.outputs == {"logits": "logits", "hidden": "rows"}
    assert head.program.inputs == {"hidden": "hidden"}
    assert head.token_ids is None
    assert "hidden   [tokens, 64]  input: hidden" in describe(head.program)


def test_it_uses_tables_of_its_own(load: Load) -> None:
    assert load(replace(EAGLE, own_embedding=True, own_output=True)).borrowed == {}
    assert load(EAGLE3).borrowed == {"embed": "embed"}


def test_draft_ids_are_told_by_offsets(load: Load) -> None:
    offsets = tensors(EAGLE3)["d2t"]
    head = load(EAGLE3)
    assert head.program.vocab_size == 200
    np.testing.assert_array_equal(head.token_ids, np.arange(200) + offsets)
    assert np.flatnonzero(tensors(EAGLE3)["t2d"]).tolist() == head.token_ids.tolist()


def test_only_what_the_head_needs_is_added_to_the_target(load: Load) -> None:
    plain = load(EAGLE)
    assert plain.target.outputs["features"] == "features"
    assert set(plain.target_weights) == set(plain.target.weights)
    assert "features.0" not in plain.target.weights
    three = load(EAGLE3).target
    assert {name for name in three.weights if name.startswith("features")} == {"features.0", "features.1", "features.2"}
    assert sum(isinstance(op, Attention) for op in three.ops) == 6
    assert sum(isinstance(op, Embed | Logits) for op in three.ops) == 2


@pytest.mark.parametrize(
    ("settings", "taps"),
    [
        ({}, (2, 3, 3)),  # behind two, half, and all but three of six layers
        ({"eagle_aux_hidden_state_layer_ids": [0, 3, 6]}, (0, 3, 6)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 4]}}, (2, 3, 5)),
    ],
)
def test_taps_are_where_the_settings_say(load: Load, settings: dict[str, object], taps: tuple[int, ...]) -> None:
    ops = load(EAGLE3, **settings).target.ops
    weights = [f"features.{index}" for index in range(3)]
    places = [next(i for i, op in enumerate(ops) if vars(op).get("weight") == weight) for weight in weights]
    layers_before = tuple(sum(isinstance(op, Attention) for op in ops[:place]) for place in places)
    assert layers_before == taps


def test_settings_may_stand_with_the_layer(load: Load) -> None:
    head = replace(EAGLE3, midlayer=False)
    layer = {key: value for key, value in config(head).items() if key not in ("architectures", "draft_vocab_size")}
    flat = dict.fromkeys(layer)
    loaded = load(head, architectures=["Eagle3Speculator"], transformer_layer_config=layer, **flat)
    assert loaded.program.vocab_size == 200


@pytest.mark.parametrize(("head", "layer"), [(EAGLE, "layers.0."), (EAGLE3, "midlayer.")])
def test_rotary_tables_are_left_out(head: RandomHead, layer: str, load: Load) -> None:
    table = {f"{layer}self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}
    assert load(head, arrays=table).program == load(head).program


FAULTS: dict[str, tuple[RandomHead, dict[str, object], type[ModelError], str]] = {
    "hidden size": (
        replace(EAGLE, hidden=32),
        {},
        ModelFileError,
        r"config.json: hidden_size=32 is not the target's 64: take the head that was made for this model",
    ),
    "hidden size of a borrowed table": (
        replace(EAGLE3, hidden=32),
        {},
        ModelFileError,
        r"hidden_size=32 is not the target's 64",
    ),
    "vocabulary": (
        EAGLE,
        {"vocab_size": 500},
        ModelFileError,
        r"vocab_size=500 is not the target's 512: take the head",
    ),
    "number of taps": (
        EAGLE3,
        {"eagle_aux_hidden_state_layer_ids": [1, 2]},
        ModelFileError,
        r"fc.weight=\[64, 192\] does not take 2 hidden states of 64 values.*behind \[1, 2\] layers: take the head",
    ),
    "tap behind the last layer": (
        EAGLE3,
        {"eagle_aux_hidden_state_layer_ids": [2, 3, 7]},
        ModelFileError,
        r"layer_ids=\[2, 3, 7\] takes hidden states behind \[2, 3, 7\] layers of a target that has 6: take",
    ),
    "taps that are no numbers": (
        EAGLE3,
        {"eagle_aux_hidden_state_layer_ids": [True, 2, 3]},
        ModelFileError,
        "must be whole numbers of layers",
    ),
    "width of the target": (
        replace(EAGLE3, target_hidden=32),
        {},
        ModelFileError,
        r"fc.weight=\[64, 96\] does not take 3 hidden states of 64",
    ),
    "several layers": (replace(EAGLE3), {"num_hidden_layers": 2}, ModelFileError, "num_hidden_layers=2 is not 1"),
    "no features": (
        EAGLE3,
        {"eagle_config": {"use_aux_hidden_state": False}},
        UnsupportedModelError,
        "use_aux_hidden_state=False asks for a feature",
    ),
    "draft vocabulary without tables": (
        RandomHead(layout="eagle3"),
        {"draft_vocab_size": 100},
        ModelFileError,
        "draft_vocab_size=100 is not the vocabulary of 512, so tensors d2t and lm_head.weight are needed",
    ),
    "draft vocabulary of another size": (
        EAGLE3,
        {"draft_vocab_size": 100},
        ModelFileError,
        r"lm_head.weight is \[200, 64\], not \[100, 64\]",
    ),
    "architecture": (EAGLE, {"architectures": ["MambaForCausalLM"]}, UnsupportedModelError, "is no draft head"),
    "activation": (EAGLE, {"hidden_act": "gelu"}, UnsupportedModelError, "hidden_act='gelu' asks for a feature"),
    "quantisation": (
        EAGLE,
        {"quantization_config": {"quant_method": "hqq"}},
        UnsupportedModelError,
        "quant_method='hqq'",
    ),
    "rotary scaling": (
        EAGLE,
        {"rope_scaling": {"rope_type": "mrope", "factor": 4.0}},
        UnsupportedModelError,
        "rope_type='mrope'",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_settings_that_do_not_fit(name: str, load: Load) -> None:
    head, settings, error, message = FAULTS[name]
    with pytest.raises(error, match=message):
        load(head, **settings)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"without": "fc.weight"}, UnsupportedModelError, "is no draft head: it lacks fc.weight"),
        (
            {"without": "midlayer.mlp.up_proj.weight"},
            ModelFileError,
            "lacks tensors that eagle3 needs: midlayer.mlp.up",
        ),
        (
            {"arrays": {"extra.weight": np.zeros((2, 2), np.float32)}},
            UnsupportedModelError,
            "leave out of eagle3.*extra",
        ),
        ({"arrays": {"d2t": np.zeros(100, np.int64)}}, ModelFileError, r"d2t is \[100\], not one offset for 200 rows"),
        (
            {"arrays": {"d2t": np.full(200, 400)}},
            ModelFileError,
            r"d2t\[112\]=400 makes row 112 .* token 512, of a target",
        ),
        ({"arrays": {"d2t": np.full(200, -1)}}, ModelFileError, r"d2t\[0\]=-1 makes row 0 of the logits token -1"),
        ({"arrays": {"d2t": np.full(200, 2**62)}}, ModelFileError, r"d2t\[0\]=4611686018427387904 makes row 0"),
        ({"arrays": {"other": np.zeros(3, np.int64)}}, UnsupportedModelError, "'other' is stored as I64"),
        (
            {"arrays": {"midlayer.hidden_norm.weight": np.ones(32, np.float32)}},
            ModelFileError,
            r"is \[32\], not \[64\]",
        ),
    ],
)
def test_tensors_that_do_not_fit(changes: dict[str, object], error: type[ModelError], message: str, load: Load) -> None:
    with pytest.raises(error, match=message):
        load(EAGLE3, **changes)
