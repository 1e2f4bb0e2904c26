"""GET /load: all that a router needs to know of an engine, in one cheap call."""

import time
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

import octavo
from octavo.request.control import EngineLoad
from octavo.server.context import ServerContext
from octavo.server.endpoints import json_response


class LoadCard:
    """How busy the engine is, what it can do, and how to foretell what it holds."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        self._fixed = self._capability()

    async def answer(self, _: Request) -> Response:
        """Load, limits and cache names of the engine. Answered at once, also while a step runs: as of its beginning.

        Raises:
            EngineDeadError: the engine is gone.
        """
        load = self._server.engine.newest_load()
        return json_response(self._fixed | _figures(load) | {"num_http_in_flight": self._server.state.total_in_flight})

    def _capability(self) -> dict[str, Any]:
        """What does not change while the server runs."""
        info = self._server.engine.info
        return {
            "version": octavo.__version__,
            "models": list(info.served_model_names),
            "max_model_len": info.max_model_len,
            "max_num_seqs": info.max_num_seqs,
            "max_num_batched_tokens": info.max_num_batched_tokens,
            "block_size": info.block_size,
            "kv_bytes_per_token": info.kv_bytes_per_token,
            "kv_root": info.kv_root,
            "kv_events": msgspec.to_builtins(info.kv_events),
            "memory": msgspec.to_builtins(info.memory) | {"total_bytes": info.memory.total_bytes},
            "step_metrics": msgspec.to_builtins(info.step_metrics),
        }


def _figures(load: EngineLoad) -> dict[str, Any]:
    """The engine's figures under their own names, without what is for metrics alone; in place of a clock's reading its
    distance from now."""
    figures: dict[str, Any] = msgspec.to_builtins(load)
    del figures["tallies"], figures["experts"]
    published_s = figures.pop("published_s")
    return figures | {"age_s": max(0.0, time.monotonic() - published_s)}
