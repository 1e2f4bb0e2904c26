"""From the name of an architecture to the family that computes it.

Plug-ins add families by an entry point in the group `octavo.models` that names a `Family`; they are asked for only when
no built-in family knows the architecture.
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from octavo.errors import ModelFileError, UnsupportedModelError
from octavo.model.draft_head import HeadDefinition, HeadLayout
from octavo.model.families.eagle import EAGLE
from octavo.model.families.eagle3 import EAGLE3
from octavo.model.families.gemma import GEMMA
from octavo.model.families.gemma2 import GEMMA2
from octavo.model.families.gemma3 import GEMMA3
from octavo.model.families.gpt2 import GPT2
from octavo.model.families.granite import GRANITE
from octavo.model.families.llama import LLAMA
from octavo.model.families.mistral import MISTRAL
from octavo.model.families.mixtral import MIXTRAL
from octavo.model.families.olmo2 import OLMO2
from octavo.model.families.phi3 import PHI3
from octavo.model.families.qwen2 import QWEN2
from octavo.model.families.qwen2_moe import QWEN2_MOE
from octavo.model.families.qwen3 import QWEN3
from octavo.model.families.qwen3_moe import QWEN3_MOE
from octavo.model.family import Family
from octavo.model.header import CheckpointHeader, Naming
from octavo.model.plug_ins import GROUP, load_families, origin
from octavo.model.program import Program
from octavo.model.sources import ModelDefinition

BUILT_IN = (
    LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA, GEMMA2, GEMMA3, PHI3, GRANITE, OLMO2, GPT2, MIXTRAL, QWEN2_MOE, QWEN3_MOE,
)  # fmt: skip
HEAD_LAYOUTS: tuple[HeadLayout, ...] = (EAGLE3, EAGLE)
"""The first that a checkpoint matches is its layout."""


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
    """The family of a checkpoint's architecture. Plug-ins are loaded only where no built-in family knows it.

    Raises:
        UnsupportedModelError: none knows it (lists those that are known, and the plug-ins at fault); several plug-ins
            do; or a plug-in has the name of the built-in family that does.
    """
    architecture = _architecture(header)
    names = {Naming.GGUF: _gguf_names, Naming.HF: _hf_names}[header.naming]
    points = entry_points(group=GROUP)
    for family in BUILT_IN:
        if architecture in names(family):
            _refuse_namesakes(header, family, points)
            return family
    families, faults = load_families(points, BUILT_IN)
    found = [family for family in families if architecture in names(family)]
    if len(found) == 1:
        return found[0]
    if found:
        several = " and ".join(origin(point) for point in points if point.name in {family.name for family in found})
        raise UnsupportedModelError(f"{header.path}: {several} both compute {architecture!r}: uninstall one")
    known = sorted({name for family in (*BUILT_IN, *families) for name in names(family)})
    raise UnsupportedModelError(
        f"{header.path}: architecture {architecture!r} is not one that Octavo computes; it computes {', '.join(known)}."
        f" A plug-in may add others (entry point group {GROUP})" + "".join(f"; {fault}" for fault in faults)
    )


def _refuse_namesakes(header: CheckpointHeader, family: Family, points: Iterable[EntryPoint]) -> None:
    """A plug-in cannot take a built-in family's place, and is not passed over in silence either."""
    for point in points:
        if point.name == family.name:
            problem = f"{origin(point)} has the name of a family that Octavo computes itself: rename or uninstall it"
            raise UnsupportedModelError(f"{header.path}: {problem}")


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
