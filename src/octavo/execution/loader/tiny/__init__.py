"""Tiny models with random weights, complete and in the real conventions of their formats: for tests and for trying."""

from octavo.execution.loader.tiny.spec import TinyModel
from octavo.execution.loader.tiny.write import write_tiny_model

__all__ = ["TinyModel", "write_tiny_model"]
