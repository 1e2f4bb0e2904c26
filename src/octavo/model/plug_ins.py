"""Families that other packages bring: entry points of the group `octavo.models`, each naming a `Family`."""

from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint

from octavo.model.family import Family

GROUP = "octavo.models"


class _PlugInError(Exception):
    """What is wrong with one plug-in; names its entry point and package."""


def load_families(points: Iterable[EntryPoint], built_in: Sequence[Family]) -> tuple[list[Family], list[str]]:
    """The families of all plug-ins that are sound, and what is wrong with the others: a plug-in at fault is in the way
    of its own models only."""
    families, faults = [], []
    for point in points:
        try:
            families.append(_load(point, built_in))
        except _PlugInError as fault:
            faults.append(str(fault))
    return families, faults


def _load(point: EntryPoint, built_in: Sequence[Family]) -> Family:
    try:
        family = point.load()
    except Exception as error:  # whatever the code of others raises
        raise _PlugInError(f"{origin(point)} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(family, Family):
        raise _PlugInError(f"{origin(point)} is a {type(family).__name__}, not an octavo.model.family.Family")
    if family.name != point.name:
        raise _PlugInError(f"{origin(point)} names its family {family.name!r}: entry point and family must agree")
    taken = sorted({name for known in built_in for name in architectures(known)}.intersection(architectures(family)))
    if taken:
        raise _PlugInError(f"{origin(point)} claims {', '.join(taken)}, which Octavo computes itself")
    return family


def origin(point: EntryPoint) -> str:
    """A plug-in in messages."""
    package = "an unknown package" if point.dist is None else f"the package {point.dist.name}"
    return f"the plug-in {point.name!r} ({point.value} of {package})"


def architectures(family: Family) -> tuple[str, ...]:
    """All names that a family answers to."""
    return (*family.gguf_architectures, *family.hf_architectures, *family.hf_model_types)
