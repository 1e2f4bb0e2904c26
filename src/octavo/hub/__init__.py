"""Models by name: from an alias, a path, a package or a hub name to files on this disk.

Names are imported on first use: whoever wants `ModelFiles` alone (every core process does) pays for no download.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.hub.aliases import ALIASES as ALIASES
    from octavo.hub.aliases import DEFAULT_MODEL as DEFAULT_MODEL
    from octavo.hub.aliases import Alias as Alias
    from octavo.hub.cache import default_root as default_root
    from octavo.hub.files import ModelFiles as ModelFiles
    from octavo.hub.progress import Progress as Progress
    from octavo.hub.store import KnownModel as KnownModel
    from octavo.hub.store import ModelStore as ModelStore
    from octavo.hub.store import find_cached as find_cached
    from octavo.hub.store import known_models as known_models
    from octavo.hub.store import pull as pull
    from octavo.hub.store import resolve as resolve

_HOMES = {
    "ALIASES": "aliases",
    "DEFAULT_MODEL": "aliases",
    "Alias": "aliases",
    "KnownModel": "store",
    "ModelFiles": "files",
    "ModelStore": "store",
    "Progress": "progress",
    "default_root": "cache",
    "find_cached": "store",
    "known_models": "store",
    "pull": "store",
    "resolve": "store",
}
__all__ = [
    "ALIASES",
    "DEFAULT_MODEL",
    "Alias",
    "KnownModel",
    "ModelFiles",
    "ModelStore",
    "Progress",
    "default_root",
    "find_cached",
    "known_models",
    "pull",
    "resolve",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'octavo.hub' has no attribute {name!r}")
    return getattr(import_module(f"octavo.hub.{_HOMES[name]}"), name)
