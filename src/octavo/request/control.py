"""Control messages between client and engine core, beside the requests themselves."""

from typing import Any

import msgspec


class ControlRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command for the engine core; each gets exactly one ControlReply with the same call id."""

    call_id: int
    command: str
    """abort | reset_prefix_cache | load | drain | shutdown"""
    request_ids: list[str] = []
    """For abort."""


class ControlReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to one ControlRequest."""

    call_id: int
    result: Any = None
    error: str | None = None


class EngineLoad(msgspec.Struct, frozen=True, kw_only=True):
    """How busy the core is; read by metrics, router and planner."""

    num_waiting: int
    num_running: int
    num_free_blocks: int
    num_blocks: int
    num_cached_blocks: int
    """Blocks findable in the prefix cache, held or evictable."""
    num_pinned_blocks: int = 0
    """Blocks that sessions hold, whoever else does."""
    num_sessions: int = 0
    counters: dict[str, float]
    """Monotone totals since start, e.g. prompt_tokens, generation_tokens, cached_tokens, preemptions, steps."""
