"""The newest load of a core process, at hand for its clients at any time: sockets that keep one message at either end.

The core puts a load there before each step that may take long, and nobody reads those that nobody asks for: no
message waits, nobody is woken. So a client can say how busy the core is while that is in the middle of a step.
"""

import contextlib
import time
from collections.abc import Callable, Sequence

import msgspec
import zmq
import zmq.asyncio

from octavo.engine import wire
from octavo.request.control import EngineLoad
from octavo.scheduling.plan import StepPlan

_PAUSE_S = 0.01
"""Loads before steps that only decode, which are short and alike, are put there at most so often."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(EngineLoad).decode


class LoadSender:
    """The core's end."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], addresses: Sequence[str], load: Callable[[], EngineLoad]
    ) -> None:
        """
        Args:
            addresses: of all clients.
        """
        self._load = load
        self._sockets = [_connected(context, address) for address in addresses]
        self._due_s = 0.0

    def before(self, plan: StepPlan) -> None:
        """A step begins."""
        is_decode = plan.num_known_tokens == len(plan.request_ids)
        if not is_decode or time.monotonic() >= self._due_s:
            self.send()

    def send(self) -> None:
        """Puts the load there as it is now."""
        self._due_s = time.monotonic() + _PAUSE_S
        load = _encode(self._load())
        for socket in self._sockets:
            with contextlib.suppress(zmq.Again):  # nobody is there yet, or any more
                socket.send(load, zmq.NOBLOCK)

    def close(self) -> None:
        """Closes the sockets."""
        for socket in self._sockets:
            socket.close(linger=0)


def _connected(context: zmq.Context[zmq.Socket[bytes]], address: str) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.PUSH)
    socket.setsockopt(zmq.CONFLATE, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, wire.RECONNECT_MS)
    socket.connect(address)
    return socket


class LoadReceiver:
    """The client's end."""

    def __init__(self, context: zmq.asyncio.Context, address: str) -> None:
        plain: zmq.Context[zmq.Socket[bytes]] = zmq.Context.shadow(context)
        self._socket = plain.socket(zmq.PULL)
        self._socket.setsockopt(zmq.CONFLATE, 1)
        self._socket.bind(address)
        self._newest: EngineLoad | None = None

    def newest(self) -> EngineLoad | None:
        """The last load that was put there; None: none so far."""
        with contextlib.suppress(zmq.Again):
            self.take(_decode(self._socket.recv(zmq.NOBLOCK)))
        return self._newest

    def take(self, load: EngineLoad) -> None:
        """Has a load that came another way counted, if it is newer."""
        if self._newest is None or load.published_s >= self._newest.published_s:
            self._newest = load

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close(linger=0)
