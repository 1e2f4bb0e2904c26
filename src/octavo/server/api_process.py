"""A further API process of a server: the same HTTP as in the first one, over the same core and the same socket.

It lives as long as the wire to the first process stands, whatever signals a terminal or a supervisor sends to all of
them: the first one decides when to drain.
"""

import asyncio
import os
import signal
import socket

import octavo.log
from octavo.engine.async_llm import AsyncLLM
from octavo.errors import OctavoError
from octavo.server import metric_totals
from octavo.server.api_keys import load_keys
from octavo.server.api_order import BUSY_FILE, USAGE_FILE, ApiOrder, decode_order
from octavo.server.app import build_context
from octavo.server.busy_board import BusyBoard
from octavo.server.context import ServerContext
from octavo.server.http_server import HttpServer
from octavo.server.listener import SharedListener
from octavo.server.peer_link import Handler, PeerLink, Word
from octavo.server.siblings import Elders
from octavo.server.usage_ledger import UsageLedger


def main(link: int, listener: int) -> int:
    """Serves until told to stop (exit 0), or the engine dies or there is none (exit 1).

    Args:
        link: file descriptor of the wire to the first process.
        listener: of the socket to accept from.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    ended_well = asyncio.run(_run(socket.socket(fileno=link), SharedListener(fileno=listener)))
    return 0 if ended_well else 1


async def _run(end: socket.socket, listener: SharedListener) -> bool:
    link = await PeerLink.over(end)
    message = await link.receive()
    if message is None:  # the first process has changed its mind
        return False
    order = decode_order(message.content)
    octavo.log.set_up(order.log, role=f"api {order.process}")
    handlers: dict[Word, Handler] = {Word.STOP: _end_at_once, Word.DEAD: _end_at_once}
    listening = asyncio.create_task(_listen(link, handlers))
    try:
        return await _serve(order, link, handlers, listener)
    except OctavoError as error:
        link.tell(Word.FAILED, str(error).encode())
        await link.flush()
        return False
    finally:
        listening.cancel()
        link.close()


async def _listen(link: PeerLink, handlers: dict[Word, Handler]) -> None:
    """Nobody is left to serve for once the first process is gone, so this one ends at once."""
    await link.listen(handlers)
    os._exit(1)


async def _end_at_once(_: bytes) -> None:
    """What there is to do before anything is served."""
    os._exit(1)


async def _serve(order: ApiOrder, link: PeerLink, handlers: dict[Word, Handler], listener: SharedListener) -> bool:
    engine = await AsyncLLM.join(order.core)
    try:
        context = _context(order, engine, link)
        server = HttpServer(context)
        handlers |= _handlers(engine, context, server)
        return await server.run(listener, lambda _: link.tell(Word.READY))
    finally:
        await engine.shutdown()


def _context(order: ApiOrder, engine: AsyncLLM, link: PeerLink) -> ServerContext:
    here = {"process": order.process, "num_processes": order.server.api_server_count}
    return build_context(
        engine,
        order.server,
        usage=UsageLedger(load_keys(order.server).limited, order.folder / USAGE_FILE, **here),
        board=BusyBoard(order.folder / BUSY_FILE, **here),
        siblings=Elders(link),
    )


def _handlers(engine: AsyncLLM, context: ServerContext, server: HttpServer) -> dict[Word, Handler]:
    async def stop(_: bytes) -> None:
        server.stop()

    async def dead(reason: bytes) -> None:
        engine.lose(reason.decode())

    async def figures(_: bytes) -> bytes:
        return metric_totals.encode(context.metrics.figures())

    return {Word.STOP: stop, Word.DEAD: dead, Word.FIGURES: figures}
