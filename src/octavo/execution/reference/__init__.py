"""The reference executor: programs run slowly in NumPy, as the oracle of values for every faster executor."""

from octavo.execution.reference.executor import Arithmetic, ReferenceExecutor

__all__ = ["Arithmetic", "ReferenceExecutor"]
