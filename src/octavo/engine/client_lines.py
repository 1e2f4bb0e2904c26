"""The core's ends of the lines to its clients: which of them asked for a request, and who gets what comes of it."""

import logging
from collections.abc import Iterator, Sequence

import zmq

from octavo.engine import wire
from octavo.engine.wire import Addresses, Kind
from octavo.request.outputs import RequestOutput

log = logging.getLogger(__name__)

Socket = zmq.Socket[bytes]


class Line:
    """One client: a socket that it writes to and one that it reads from."""

    def __init__(self, incoming: Socket, outgoing: Socket) -> None:
        self.incoming = incoming
        self.outgoing = outgoing

    def send(self, kind: Kind, payload: object) -> None:
        """Sends a message; waits while the client is far behind.

        Raises:
            zmq.ZMQError: the line is closed.
        """
        self.outgoing.send_multipart([kind.frame, wire.encoder.encode(payload)])

    def offer(self, kind: Kind, payload: object) -> bool:
        """Sends a message unless the client is so far behind that it would have to be waited for; whether it did."""
        try:
            self.outgoing.send_multipart([kind.frame, wire.encoder.encode(payload)], zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def close(self, linger_ms: int) -> None:
        """Closes both sockets; what has been sent may still leave for so long."""
        self.outgoing.close(linger=linger_ms)
        self.incoming.close(linger=0)


class ClientLines:
    """The clients of a core, by number. Client 0 has started it, and it ends with that one; others may leave.

    Outputs go to the client that sent their request. With one client there is nothing to look up, and it is waited
    for when it falls behind. With several nobody waits for one of them: who does not read for `HIGH_WATER_MARK`
    messages has left.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = dict(enumerate(lines))
        self._client_by_request: dict[str, int] = {}
        """Only kept with several clients; until the request ends."""
        self._is_alone = len(lines) == 1

    @property
    def sockets(self) -> list[Socket]:
        """Those to poll for messages."""
        return [line.incoming for line in self._lines.values()]

    def incoming_of(self, client: int) -> Socket | None:
        """Where a client's messages come from; None: it has left."""
        line = self._lines.get(client)
        return None if line is None else line.incoming

    def messages(self) -> Iterator[tuple[int, bytes, bytes]]:
        """All that have arrived: client, kind and payload. Clients may leave meanwhile."""
        for client, line in list(self._lines.items()):
            while client in self._lines and line.incoming.poll(0):
                frames = line.incoming.recv_multipart()
                if len(frames) == len(("kind", "payload")):
                    yield client, frames[0], frames[1]
                else:
                    log.error("dropped a message of %d frames: no client of ours sends that", len(frames))

    def own(self, client: int, request_id: str) -> None:
        """Notes whose request it is."""
        if not self._is_alone:
            self._client_by_request[request_id] = client

    def disown(self, request_ids: Sequence[str]) -> None:
        """Forgets requests that end without an output."""
        for request_id in request_ids:
            self._client_by_request.pop(request_id, None)

    def send(self, client: int, kind: Kind, payload: object) -> None:
        """Sends one client a message; one that has left gets none."""
        line = self._lines.get(client)
        if line is None:
            return
        if self._is_alone:
            line.send(kind, payload)
        else:
            line.offer(kind, payload)

    def send_all(self, kind: Kind, payload: object) -> None:
        """Sends all clients a message."""
        for client in self._lines:
            self.send(client, kind, payload)

    def send_outputs(self, outputs: list[RequestOutput]) -> list[int]:
        """Sends each client the outputs of its own requests; returns the clients that do not read."""
        if self._is_alone:
            self.send(0, Kind.OUTPUTS, outputs)
            return []
        parts = self._by_client(outputs)
        return [client for client, part in parts.items() if not self._lines[client].offer(Kind.OUTPUTS, part)]

    def _by_client(self, outputs: list[RequestOutput]) -> dict[int, list[RequestOutput]]:
        parts: dict[int, list[RequestOutput]] = {}
        for output in outputs:
            client = self._client_by_request.get(output.request_id)
            if client is not None:  # else it was given up
                parts.setdefault(client, []).append(output)
                if output.finish_reason is not None:
                    del self._client_by_request[output.request_id]
        return parts

    def leave(self, client: int) -> list[str]:
        """Ends the line to a client; returns its requests, which nobody waits for any more. Idempotent."""
        line = self._lines.pop(client, None)
        if line is not None:
            line.close(linger_ms=0)
        left = [request_id for request_id, owner in self._client_by_request.items() if owner == client]
        self.disown(left)
        return left

    def close(self) -> None:
        """Closes all lines."""
        for line in self._lines.values():
            line.close(linger_ms=2000)


def connect(context: zmq.Context[Socket], clients: Sequence[Addresses]) -> ClientLines:
    """Connects to the sockets that clients bind, or will."""
    return ClientLines(
        [
            Line(_connected(context, zmq.PULL, client.input), _connected(context, zmq.PUSH, client.output))
            for client in clients
        ]
    )


def _connected(context: zmq.Context[Socket], kind: int, address: str) -> Socket:
    socket = context.socket(kind)
    socket.set_hwm(wire.HIGH_WATER_MARK)
    socket.setsockopt(zmq.RECONNECT_IVL, wire.RECONNECT_MS)
    socket.connect(address)
    return socket
