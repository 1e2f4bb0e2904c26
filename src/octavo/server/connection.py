"""Work on behalf of a connected client: it ends when the client goes away or the server must stop."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from octavo.server.state import ServerState

Result = TypeVar("Result")

GIVE_BACK_S = 2.0
"""How long cancelled work may take to give back what it holds in the engine before its client is answered anyway: the
engine may be in a long step, or stuck."""


class ClientGoneError(Exception):
    """The client closed the connection; there is nobody to answer."""


async def while_connected(work: Coroutine[Any, Any, Result], receive: Receive, state: ServerState) -> Result:
    """Runs `work` to its end unless the client disconnects or the server's patience ends; then it is cancelled, so
    that whatever it holds in the engine is given back.

    Raises:
        ClientGoneError: the client went away.
        ApiError: 503, the server stops or the engine is dead.
    """
    worker = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(receive))
    stop = asyncio.ensure_future(state.cut_off())
    try:
        await asyncio.wait({worker, gone, stop}, return_when=asyncio.FIRST_COMPLETED)
        if worker.done():
            return worker.result()
        if gone.done():
            raise ClientGoneError
        raise stop.result()
    finally:
        await end_tasks(worker, gone, stop, patience_s=GIVE_BACK_S)


async def end_tasks(*tasks: "asyncio.Future[Any]", patience_s: float | None = None) -> None:
    """Cancels tasks whose results nobody wants and waits for them. What one raises on its way out is nobody's business
    either; unfetched, asyncio would report it as lost."""
    for task in tasks:
        task.cancel()
        task.add_done_callback(_fetch)
    await asyncio.wait(tasks, timeout=patience_s)


def _fetch(task: "asyncio.Future[Any]") -> None:
    if not task.cancelled():
        task.exception()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
