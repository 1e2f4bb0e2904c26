"""From a checkpoint's architecture to its family."""

from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.model import registry
from octavo.model.families.llama import LLAMA, define
from octavo.model.family import Family
from octavo.model.header import CheckpointHeader, Naming
from tests.model.headers import gguf, hf

PLUGGED_IN = Family(
    name="tinyllama-like",
    gguf_architectures=("other",),
    hf_architectures=("OtherForCausalLM",),
    hf_model_types=("other",),
    define=define,
)


def named(name: str) -> CheckpointHeader:
    return replace(hf("llama"), metadata={**hf("llama").metadata, "architectures": [name]})


@pytest.fixture
def entry_point(monkeypatch: pytest.MonkeyPatch):
    """Makes a value importable by name appear as the one entry point of the models group."""

    def install(value: str) -> None:
        point = EntryPoint(name="other", value=value, group=registry.ENTRY_POINT_GROUP)
        monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == point.group else [])

    return install


def test_both_namings_find_the_family() -> None:
    assert registry.find_family(gguf("llama")) is LLAMA
    assert registry.find_family(hf("llama")) is LLAMA


def test_model_type_stands_in_for_missing_architectures() -> None:
    metadata = {**hf("llama").metadata, "architectures": None, "model_type": "llama"}
    assert registry.find_family(CheckpointHeader("folder", Naming.HF, metadata, {})) is LLAMA


def test_another_head_on_a_known_body_is_refused() -> None:
    header = named("LlamaForSequenceClassification")
    header = replace(header, metadata={**header.metadata, "model_type": "llama"})
    with pytest.raises(UnsupportedModelError, match="LlamaForSequenceClassification"):
        registry.find_family(header)


@pytest.mark.parametrize(
    ("header", "known"),
    [
        (CheckpointHeader("m.gguf", Naming.GGUF, {"general.architecture": "rwkv7"}, {}), "gemma3, gpt2, llama, qwen2"),
        (named("RwkvForCausalLM"), "GPT2LMHeadModel, Gemma3ForCausalLM, LlamaForCausalLM, Qwen2ForCausalLM"),
    ],
)
def test_an_unknown_architecture_lists_the_known_ones(header: CheckpointHeader, known: str) -> None:
    with pytest.raises(UnsupportedModelError, match=known):
        registry.define_model(header)


@pytest.mark.parametrize("naming", Naming)
def test_a_file_without_an_architecture_is_no_model(naming: Naming) -> None:
    with pytest.raises(ModelFileError, match="no architecture is named"):
        registry.define_model(CheckpointHeader("file", naming, {"general.type": "model"}, {}))


def test_a_plug_in_adds_an_architecture(entry_point) -> None:
    entry_point(f"{__name__}:PLUGGED_IN")
    assert registry.find_family(named("OtherForCausalLM")) is PLUGGED_IN
    assert registry.define_model(named("OtherForCausalLM")).program == define(hf("llama")).program
    with pytest.raises(UnsupportedModelError, match="OtherForCausalLM"):
        registry.find_family(named("Unknown"))


def test_a_plug_in_cannot_take_a_built_in_name(entry_point) -> None:
    entry_point(f"{__name__}:PLUGGED_IN")
    assert registry.find_family(hf("llama")) is LLAMA


def test_a_plug_in_must_be_a_family(entry_point) -> None:
    entry_point(f"{__name__}:named")
    with pytest.raises(TypeError, match=r"'other'.*is no Family"):
        registry.find_family(named("OtherForCausalLM"))
