"""What other packages bring, found by entry point: by name, and from one package."""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from octavo.errors import ConfigError


def plug_in(group: str, setting: str, name: str, built_in: Iterable[str] = ()) -> EntryPoint:
    """The entry point of a name. No plug-in is loaded.

    Args:
        setting: the setting that names it.
        built_in: names that need no package, to list where there is none of this name.

    Raises:
        ConfigError: there is none, or several packages bring one.
    """
    found = entry_points(group=group)
    offers = [point for point in found if point.name == name]
    if not offers:
        known = ", ".join(sorted({*built_in, *found.names})) or "none"
        problem = f"known are {known}; packages can bring others as entry points of {group!r}"
        raise ConfigError(setting, name, problem)
    if len(offers) > 1:
        packages = ", ".join(sorted(_package(point) for point in offers))
        raise ConfigError(setting, name, f"several packages bring one of this name: {packages}")
    return offers[0]


def made(point: EntryPoint, setting: str, argument: object, kind: type) -> object:
    """What a plug-in's factory makes.

    Raises:
        ConfigError: it cannot be loaded or made, or is no `kind`; naming the plug-in and its package.
    """
    origin = f"{point.value} of the package {_package(point)}"
    try:
        product = point.load()(argument)
    except ConfigError:
        raise
    except Exception as error:
        problem = f"{origin} cannot be loaded: {type(error).__name__}: {error}"
        raise ConfigError(setting, point.name, problem) from error
    if not isinstance(product, kind):
        raise ConfigError(setting, point.name, f"{origin} gave a {type(product).__name__}, not a {kind.__name__}")
    return product


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "(unknown)"
