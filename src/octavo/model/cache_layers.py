"""Where in a KV memory the layers of a program stand: a pass for programs that share one."""

from dataclasses import replace

from octavo.model.program import Attention, CacheWrite, Op, Program


def with_layers_from(program: Program, first: int) -> Program:
    """The program with its cache layers counted from `first` on: those before belong to another program that runs over
    the same block tables. Its `cache_layers` stay as they are."""
    return replace(program, ops=tuple(_moved(op, first) for op in program.ops)) if first else program


def _moved(op: Op, first: int) -> Op:
    return replace(op, layer=op.layer + first) if isinstance(op, CacheWrite | Attention) else op
