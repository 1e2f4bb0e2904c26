"""The native executor: a program recorded once, run by one native call per step."""

from octavo.execution.native.executor import NativeExecutor

__all__ = ["NativeExecutor"]
