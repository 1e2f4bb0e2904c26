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
        for task in (worker, gone, stop):
            task.cancel()
        await asyncio.wait({worker, gone, stop}, timeout=GIVE_BACK_S)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
