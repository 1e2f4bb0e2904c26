"""The names of GGUF files against the package that their converter takes them from."""

from functools import cache

import pytest

from octavo.model.registry import define_model
from tests.model.headers import LAYERS, gguf, hf
from tests.model.test_families import FAMILIES


@cache
def name_map(family: str):
    """Hugging Face's names of an architecture's tensors -> GGUF's."""
    package = pytest.importorskip("gguf")
    (architecture,) = (arch for arch, name in package.MODEL_ARCH_NAMES.items() if name == family)
    return package.get_tensor_name_map(architecture, LAYERS)


@pytest.mark.parametrize("family", FAMILIES)
def test_tensors_are_called_as_the_converter_calls_them(family: str) -> None:
    in_gguf, in_hf = define_model(gguf(family)), define_model(hf(family))
    assert in_gguf.sources.keys() == in_hf.sources.keys()
    for weight, source in in_gguf.sources.items():
        known = name_map(family).get_name(in_hf.sources[weight].name, try_suffixes=(".weight", ".bias"))
        assert known == source.name, weight


KEYS = {
    "granite": ("embedding_scale", "attention.scale", "residual_scale", "logit_scale"),
    "gemma2": ("attn_logit_softcapping", "final_logit_softcapping", "attention.sliding_window"),
    "gemma3": ("attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa"),
    "phi3": (
        "rope.scaling.original_context_length",
        "rope.scaling.attn_factor",
        "rope.dimension_count",
        "attention.sliding_window",
    ),
    "qwen2": (
        "rope.scaling.type",
        "rope.scaling.factor",
        "rope.scaling.yarn_beta_fast",
        "rope.scaling.yarn_beta_slow",
        "rope.scaling.yarn_ext_factor",
        "rope.scaling.yarn_log_multiplier",
    ),
}


@pytest.mark.parametrize("family", KEYS)
def test_keys_are_spelled_as_the_converter_spells_them(family: str) -> None:
    package = pytest.importorskip("gguf")
    spelled = _spelled(package.Keys)
    assert {"{arch}." + key for key in KEYS[family]} <= spelled


def _spelled(keys: type) -> set[str]:
    rooms = (room for room in vars(keys).values() if isinstance(room, type))
    return {value for room in rooms for value in vars(room).values() if isinstance(value, str)}
