"""The further API processes of a server, as the first one sees them: told what to serve and when to stop, watched,
asked what they have counted.

All accept from one listening socket. Not from one each with SO_REUSEPORT: there the kernel deals connections out by a
hash, also to a process that is busy or about to end; those that wait at a process that ends are lost; and a port that
another program of the same user has taken that way does not look taken.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import octavo.log
from octavo.config import ServerConfig
from octavo.engine.async_llm import AsyncLLM
from octavo.engine.core_hold import JoinOrder
from octavo.engine.core_process import CoreProcess
from octavo.errors import EngineDeadError
from octavo.server import metric_totals
from octavo.server.api_order import ApiOrder, encode_order
from octavo.server.api_spawn import ApiProcess, ApiSpawn
from octavo.server.busy_board import BusyBoard
from octavo.server.metric_totals import Figures
from octavo.server.peer_link import Message, PeerLink, Word, framed
from octavo.server.siblings import PATIENCE_S
from octavo.server.state import FAREWELL_S

log = logging.getLogger(__name__)

END_PATIENCE_S = FAREWELL_S + 7.0
"""How long one may take to end after its drain: its farewells, and connections that close."""


@dataclass
class _Member:
    """A process that has been joined."""

    process: ApiProcess
    link: PeerLink
    ready: asyncio.Event
    failure: str = ""
    figures: Sequence[Figures] = ()
    """What it said last that it had counted. It stays when the process ends: no total ever falls."""


class ApiProcesses:
    """All further processes; `joined` is their life in the event loop. Whoever has started them ends them at last."""

    def __init__(self, spawn: ApiSpawn) -> None:
        self._processes = spawn.processes
        self._members: list[_Member] = []
        self._own: Callable[[], Sequence[Figures]] = list
        self._stop: Callable[[], None] = lambda: None
        self._stopping = False
        self.lost: str | None = None
        """Why the server cannot go on: one of them has ended by itself."""

    def load(self, server: ServerConfig, core_for: Callable[[int], JoinOrder]) -> None:
        """Orders them to serve.

        Args:
            core_for: how a client of that number joins the core.
        """
        for process in self._processes:
            order = ApiOrder(server=server, core=core_for(process.number), log=octavo.log.current())
            process.send(framed(Message(Word.ORDER, 0, encode_order(order))))

    @asynccontextmanager
    async def joined(
        self,
        engine: AsyncLLM,
        core: CoreProcess,
        board: BusyBoard,
        own: Callable[[], Sequence[Figures]],
        stop: Callable[[], None],
    ) -> AsyncIterator[None]:
        """Waits until all accept connections. Within the block they are watched: one that ends by itself is the
        beginning of the server's end, as it is in vLLM: a supervisor starts a whole server better than we mend half a
        one. After it they have ended.

        Args:
            board: gets zeros for those that end.
            own: what this process has counted.
            stop: has the whole server drain.

        Raises:
            EngineDeadError: one of them cannot start.
        """
        self._own, self._stop = own, stop
        for process in self._processes:
            self._members.append(_Member(process, await PeerLink.over(process.end), asyncio.Event()))
        watching = [asyncio.create_task(self._watch(member, engine, core, board)) for member in self._members]
        mourning = asyncio.create_task(self._tell_death(engine))
        try:
            await self._all_ready(watching)
            yield
            await self._end(watching)
        finally:
            for task in (mourning, *watching):
                task.cancel()
            await asyncio.gather(mourning, *watching, return_exceptions=True)
            for member in self._members:
                member.link.close()

    async def _all_ready(self, watching: Sequence["asyncio.Task[None]"]) -> None:
        ready = [asyncio.create_task(member.ready.wait()) for member in self._members]
        try:
            pending: set[asyncio.Task[bool]] = set(ready)
            while pending:
                await asyncio.wait({*pending, *watching}, return_when=asyncio.FIRST_COMPLETED)
                pending = {task for task in pending if not task.done()}
                if self._stopping:
                    return
                if any(task.done() for task in watching):
                    problem = next((member.failure for member in self._members if member.failure), self.lost)
                    raise EngineDeadError(f"an API process cannot start: {problem}")
        finally:
            for task in ready:
                task.cancel()

    async def _watch(self, member: _Member, engine: AsyncLLM, core: CoreProcess, board: BusyBoard) -> None:
        """Answers a process until it ends."""
        await member.link.listen(self._handlers(member, core))
        code = await asyncio.to_thread(member.process.popen.wait)
        board.clear(member.process.number)
        if self._stopping or not engine.alive:
            return
        self.lost = f"API process {member.process.number} ended with exit code {code}"
        log.error("%s; the server drains and ends", self.lost)
        self._stop()
        await engine.forget_client(member.process.number)

    def _handlers(self, member: _Member, core: CoreProcess) -> dict[Word, Callable[[bytes], Awaitable[bytes | None]]]:
        async def ready(_: bytes) -> None:
            core.note_connection()
            member.ready.set()

        async def failed(reason: bytes) -> None:
            member.failure = reason.decode()

        async def totals(own: bytes) -> bytes:
            member.figures = metric_totals.decode(own)
            others = [other for other in self._members if other is not member]
            return metric_totals.encode(metric_totals.added_up([self._own(), *await self._figures(others)]))

        return {Word.READY: ready, Word.FAILED: failed, Word.TOTALS: totals}

    async def totals(self, own: Sequence[Figures]) -> list[Figures]:
        """See `Siblings.totals`."""
        return metric_totals.added_up([own, *await self._figures(self._members)])

    async def _figures(self, members: Sequence[_Member]) -> list[Sequence[Figures]]:
        """What they have counted, now or when they said it last."""
        await asyncio.gather(*map(self._ask_figures, members))
        return [member.figures for member in members]

    async def _ask_figures(self, member: _Member) -> None:
        if member.process.popen.returncode is None:
            asked = asyncio.ensure_future(member.link.ask(Word.FIGURES))
            await asyncio.wait({asked}, timeout=PATIENCE_S)
            if asked.done() and not asked.cancelled():
                member.figures = metric_totals.decode(asked.result())
            asked.cancel()

    async def _tell_death(self, engine: AsyncLLM) -> None:
        reason = await engine.wait_dead()
        for member in self._members:
            member.link.tell(Word.DEAD, reason.encode())

    def stop(self) -> None:
        """Tells all to drain; at the second time to end at once."""
        self._stopping = True
        for member in self._members:
            member.link.tell(Word.STOP)

    async def _end(self, watching: Sequence["asyncio.Task[None]"]) -> None:
        """Has those end that are left. This one has drained as they have, so what they still need is short."""
        if not self._stopping:
            self.stop()
        await asyncio.wait(watching, timeout=END_PATIENCE_S)
