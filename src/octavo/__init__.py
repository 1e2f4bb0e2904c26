"""Octavo: a paged LLM serving engine.

The public surface is small and imported lazily, so that ``import octavo`` stays fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.engine.async_llm import AsyncLLM as AsyncLLM
    from octavo.engine.llm import LLM as LLM
    from octavo.errors import OctavoError as OctavoError
    from octavo.request.params import SamplingParams as SamplingParams
    from octavo.request.pooling import PoolingParams as PoolingParams
    from octavo.request.structured import StructuredKind as StructuredKind
    from octavo.request.structured import StructuredSpec as StructuredSpec

__version__ = "0.1.0"

_HOMES = {
    "LLM": "octavo.engine.llm",
    "AsyncLLM": "octavo.engine.async_llm",
    "OctavoError": "octavo.errors",
    "PoolingParams": "octavo.request.pooling",
    "SamplingParams": "octavo.request.params",
    "StructuredKind": "octavo.request.structured",
    "StructuredSpec": "octavo.request.structured",
}
__all__ = [
    "LLM",
    "AsyncLLM",
    "OctavoError",
    "PoolingParams",
    "SamplingParams",
    "StructuredKind",
    "StructuredSpec",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
