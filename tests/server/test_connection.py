"""Work for a client that leaves, and what asyncio would say of it."""

import asyncio
import gc
from typing import Any

import pytest

from octavo.server.connection import ClientGoneError, while_connected
from octavo.server.errors import ApiError, engine_dead
from octavo.server.state import ServerState


@pytest.mark.parametrize("leaves", [True, False])
def test_what_work_raises_on_its_way_out_is_no_lost_exception(leaves: bool) -> None:
    """As when an engine dies just while it is told to drop a request."""
    heard: list[dict[str, Any]] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise engine_dead()

    async def gone() -> dict[str, str]:
        if not leaves:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def body() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
        state = ServerState()
        if not leaves:
            asyncio.get_running_loop().call_soon(state.cut_off_now, engine_dead())
        with pytest.raises(ClientGoneError if leaves else ApiError):
            await while_connected(work(), gone, state)  # type: ignore[arg-type]
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(body())
    assert heard == []
