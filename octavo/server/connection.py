"""Work on behalf of a connected client: it ends when the client goes away or the server must stop."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from octavo.server.errors import shutting_down
from octavo.server.state import ServerState

Result = TypeVar("Result")


class ClientGoneError(Exception):
    """The client closed the connection; there is nobody to answer."""


async def while_connected(work: Coroutine[Any, Any, Result], receive: Receive, state: ServerState) -> Result:
    """Runs `work` to its end unless the client disconnects or the server's patience ends; then it is cancelled, and
    waited for, so that whatever it holds in the engine is given back.

    Raises:
        ClientGoneError: the client went away.
        ApiError: 503, the server stops.
    """
    worker = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(receive))
    stop = asyncio.ensure_future(state.cut_off())
    try:
        await asyncio.wait({worker, gone, stop}, return_when=asyncio.FIRST_COMPLETED)
        if worker.done():
            return worker.result()
        raise ClientGoneError if gone.done() else shutting_down()
    finally:
        for task in (worker, gone, stop):
            task.cancel()
        await asyncio.gather(worker, gone, stop, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
