"""Models by name: from an alias, a path, a package or a hub name to files on this disk."""

from octavo.hub.aliases import ALIASES, DEFAULT_MODEL, Alias
from octavo.hub.cache import default_root
from octavo.hub.files import ModelFiles
from octavo.hub.progress import Progress
from octavo.hub.store import KnownModel, ModelStore, find_cached, known_models, pull, resolve

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
