"""From the name of an architecture to the family that computes it.

Plug-ins add families by an entry point in the group `octavo.models` that names a `Family`; they are asked for only when
no built-in family knows the architecture.
"""

from collections.abc import Iterable
from importlib.metadata import entry_points

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.model.draft_head import HeadDefinition, HeadLayout
from octavo.model.families.eagle import EAGLE
from octavo.model.families.eagle3 import EAGLE3
from octavo.model.families.gemma3 import GEMMA3
from octavo.model.families.gpt2 import GPT2
from octavo.model.families.llama import LLAMA
from octavo.model.families.qwen2 import QWEN2
from octavo.model.family import Family
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.program import Program
from octavo.model.sources import ModelDefinition

BUILT_IN = (LLAMA, QWEN2, GEMMA3, GPT2)
HEAD_LAYOUTS: tuple[HeadLayout, ...] = (EAGLE3, EAGLE)
"""The first that a checkpoint matches is its layout."""
ENTRY_POINT_GROUP = "octavo.models"


def define_model(header: CheckpointHeader) -> ModelDefinition:
    """The program of a checkpoint and the sources of its weights.

    Raises:
        UnsupportedModelError: no family knows the architecture, or its family does not compute a feature it asks for.
        ModelFileError: metadata is missing or absurd.
    """
    return find_family(header).define(header)


def define_head(header: CheckpointHeader, target: Program) -> HeadDefinition:
    """The draft head of a checkpoint, for the model that `target` computes.

    Raises:
        UnsupportedModelError: the checkpoint has no layout that is known, or asks for what its layout does not compute.
        ModelFileError: settings are missing, absurd, or do not fit the target.
    """
    for layout in HEAD_LAYOUTS:
        if layout.matches(header):
            return layout.define(header, target)
    known = ", ".join(layout.name for layout in HEAD_LAYOUTS)
    raise UnsupportedModelError(
        f"{header.path}: is no draft head: it lacks fc.weight. Octavo knows the layouts {known}"
    )


def find_family(header: CheckpointHeader) -> Family:
    """The family of a checkpoint's architecture; raises UnsupportedModelError listing the known ones."""
    architecture = _architecture(header)
    names = {Naming.GGUF: _gguf_names, Naming.HF: _hf_names}[header.naming]
    built_in = [family for family in BUILT_IN if architecture in names(family)]
    if built_in:
        return built_in[0]
    plugged_in = _plugged_in()
    found = [family for family in plugged_in if architecture in names(family)]
    if found:
        return found[0]
    known = sorted({name for family in (*BUILT_IN, *plugged_in) for name in names(family)})
    raise UnsupportedModelError(
        f"{header.path}: architecture {architecture!r} is not one that Octavo computes; it computes {', '.join(known)}."
        f" A plug-in may add others (entry point group {ENTRY_POINT_GROUP})"
    )


def _architecture(header: CheckpointHeader) -> str:
    if header.naming is Naming.GGUF:
        name = header.metadata.get("general.architecture")
    else:
        listed = header.metadata.get("architectures")
        name = listed[0] if isinstance(listed, list | tuple) and listed else header.metadata.get("model_type")
    if not isinstance(name, str):
        key = "general.architecture" if header.naming is Naming.GGUF else "architectures or model_type in config.json"
        raise ModelFileError(f"{header.path}: no architecture is named ({key}): it is no language model's checkpoint")
    return name


def _gguf_names(family: Family) -> Iterable[str]:
    return family.gguf_architectures


def _hf_names(family: Family) -> Iterable[str]:
    return (*family.hf_architectures, *family.hf_model_types)


def _plugged_in() -> list[Family]:
    families = [(point.name, point.load()) for point in entry_points(group=ENTRY_POINT_GROUP)]
    for name, family in families:
        if not isinstance(family, Family):
            raise TypeError(f"entry point {name!r} of group {ENTRY_POINT_GROUP} is no Family but {family!r:.80}")
    return [family for _, family in families]
