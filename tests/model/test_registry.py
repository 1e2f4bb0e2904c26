"""From a checkpoint's architecture to its family."""

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.model import registry
from octavo.model.families.llama import LLAMA, define
from octavo.model.family import Family
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.plug_ins import GROUP
from tests.model.headers import gguf, hf

PLUGGED_IN = Family(
    name="other",
    gguf_architectures=("other",),
    hf_architectures=("OtherForCausalLM",),
    hf_model_types=("other",),
    define=define,
)


def named(name: str) -> CheckpointHeader:
    return replace(hf("llama"), metadata={**hf("llama").metadata, "architectures": [name]})


OFFERED_LLAMA = replace(PLUGGED_IN, hf_model_types=("other", "llama"))
Install = Callable[..., None]


@pytest.fixture
def entry_points(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes values importable by name appear as the entry points of the models group."""

    def install(*values: str, name: str = "other") -> None:
        points = [EntryPoint(name=name, value=value, group=GROUP) for value in values]
        monkeypatch.setattr(registry, "entry_points", lambda group: points if group == GROUP else [])

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
        (
            CheckpointHeader("m.gguf", Naming.GGUF, {"general.architecture": "rwkv7"}, {}),
            "gemma, .*gpt2, .*llama, .*qwen2, ",
        ),
        (named("RwkvForCausalLM"), "GPT2LMHeadModel, .*Gemma3ForCausalLM, .*LlamaForCausalLM, .*Qwen2ForCausalLM"),
    ],
)
def test_an_unknown_architecture_lists_the_known_ones(header: CheckpointHeader, known: str) -> None:
    with pytest.raises(UnsupportedModelError, match=known):
        registry.define_model(header)


@pytest.mark.parametrize("naming", Naming)
def test_a_file_without_an_architecture_is_no_model(naming: Naming) -> None:
    with pytest.raises(ModelFileError, match="no architecture is named"):
        registry.define_model(CheckpointHeader("file", naming, {"general.type": "model"}, {}))


def test_a_plug_in_adds_an_architecture(entry_points: Install) -> None:
    entry_points(f"{__name__}:PLUGGED_IN")
    assert registry.find_family(named("OtherForCausalLM")) is PLUGGED_IN
    assert registry.define_model(named("OtherForCausalLM")).program == define(hf("llama")).program
    with pytest.raises(UnsupportedModelError, match="OtherForCausalLM"):
        registry.find_family(named("Unknown"))


@pytest.mark.parametrize(
    ("value", "name", "problem"),
    [
        (f"{__name__}:named", "other", r"is a function, not an octavo\.model\.family\.Family"),
        ("no_such_module_of_anybody:FAMILY", "other", "cannot be loaded: ModuleNotFoundError: No module named"),
        (f"{__name__}:no_such_family", "other", "cannot be loaded: AttributeError"),
        (f"{__name__}:PLUGGED_IN", "another", "names its family 'other': entry point and family must agree"),
        (f"{__name__}:OFFERED_LLAMA", "other", "claims llama, which Octavo computes itself"),
    ],
)
def test_a_plug_in_at_fault_is_named(entry_points: Install, value: str, name: str, problem: str) -> None:
    entry_points(value, name=name)
    said = rf"the plug-in '{name}' \({value} of an unknown package\) {problem}"
    with pytest.raises(UnsupportedModelError, match=said):
        registry.find_family(named("OtherForCausalLM"))


def test_a_plug_in_at_fault_is_in_nobody_elses_way(entry_points: Install) -> None:
    entry_points("no_such_module_of_anybody:FAMILY", f"{__name__}:PLUGGED_IN")
    assert registry.find_family(named("OtherForCausalLM")) is PLUGGED_IN
    assert registry.find_family(hf("llama")) is LLAMA


def test_two_plug_ins_for_one_architecture_are_both_named(entry_points: Install) -> None:
    entry_points(f"{__name__}:PLUGGED_IN", f"{__name__}:PLUGGED_IN")
    with pytest.raises(UnsupportedModelError, match=r"and the plug-in 'other'.*both compute 'OtherForCausalLM'"):
        registry.find_family(named("OtherForCausalLM"))


def test_a_plug_in_with_a_built_in_name_is_refused_where_it_would_be_passed_over(entry_points: Install) -> None:
    entry_points("no_such_module_of_anybody:FAMILY", name="llama")
    with pytest.raises(UnsupportedModelError, match=r"'llama'.*has the name of a family that Octavo computes itself"):
        registry.find_family(hf("llama"))
    assert registry.find_family(hf("qwen2")).name == "qwen2"
