"""Whether the server takes requests: serving, draining, or in front of a dead engine."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from octavo.server.busy_board import BusyBoard
from octavo.server.errors import ApiError, engine_dead, shutting_down

log = logging.getLogger(__name__)

FAREWELL_S = 5.0
"""How long requests that were cut off may take to end: a little longer than each waits for the engine."""


class Phase(Enum):
    """Where the server is in its life."""

    SERVING = "serving"
    DRAINING = "draining"
    """No new requests; those that run may finish."""
    DEAD = "dead"
    """The engine is gone."""


class ServerState:
    """The phase, and the requests being generated. Lives in the event loop's thread."""

    def __init__(self, board: BusyBoard | None = None) -> None:
        """
        Args:
            board: where the server's processes write how many requests each has in progress; None: there is only one.
        """
        self.board = board or BusyBoard()
        self.phase = Phase.SERVING
        self.death_reason: str | None = None
        self.in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._cut_off: asyncio.Future[ApiError] = asyncio.get_running_loop().create_future()
        self._refusing = asyncio.Event()

    def refusal(self) -> ApiError | None:
        """Why a new request cannot be taken; None if it can."""
        match self.phase:
            case Phase.DRAINING:
                return shutting_down()
            case Phase.DEAD:
                return engine_dead()
        return None

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Holds a place for one request.

        Raises:
            ApiError: 503 while draining or dead.
        """
        refusal = self.refusal()
        if refusal is not None:
            raise refusal
        self._count(1)
        self._idle.clear()
        try:
            yield
        finally:
            self._count(-1)
            if self.in_flight == 0:
                self._idle.set()

    def _count(self, more: int) -> None:
        self.in_flight += more
        self.board.write(self.in_flight)

    @property
    def total_in_flight(self) -> int:
        """Requests being generated in all processes of the server."""
        return self.board.total

    def die(self, reason: str) -> None:
        """Notes that the engine is gone, and ends what runs: some of it might wait for an answer for ever."""
        self.phase, self.death_reason = Phase.DEAD, reason
        self._refusing.set()
        self.cut_off_now(engine_dead())

    async def drain(self, timeout_s: float) -> None:
        """Takes no more requests and gives those that run `timeout_s` seconds, or until `cut_off_now`; then cuts them
        off and waits until each has told its client, but not for an engine that hangs."""
        if self.phase is Phase.SERVING:
            self.phase = Phase.DRAINING
        self._refusing.set()
        idle = asyncio.ensure_future(self._idle.wait())
        ends: set[asyncio.Future[Any]] = {idle, self._cut_off}
        try:
            await asyncio.wait(ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not idle.done():
                if not self._cut_off.done():
                    log.warning("the time is up: %d requests are ended now", self.in_flight)
                self.cut_off_now(shutting_down())
                await asyncio.wait({idle}, timeout=FAREWELL_S)
        finally:
            idle.cancel()

    async def refusing(self) -> ApiError:
        """Returns what to tell clients when nothing new is taken any more, a request that has not arrived in full
        included."""
        await self._refusing.wait()
        return self.refusal() or shutting_down()

    def cut_off_now(self, farewell: ApiError) -> None:
        """Ends the patience with running requests; `farewell` is what their clients are told."""
        if not self._cut_off.done():
            self._cut_off.set_result(farewell)

    async def cut_off(self) -> ApiError:
        """Returns what to tell clients when running requests must end at once."""
        return await asyncio.shield(self._cut_off)
