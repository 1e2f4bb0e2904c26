"""Carries messages between engines and a directory: a socket per engine for its events, one per request."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import zmq

from octavo.router.kv_directory import KvDirectory
from octavo.router.kv_messages import (
    AskReplay,
    AskSnapshot,
    Live,
    Message,
    Refused,
    Replayed,
    ReplayEnd,
    Request,
    Snapshot,
)

Socket = zmq.Socket[bytes]

SNAPSHOT_REQUEST = b"snapshot"
TICK_S = 0.5
MESSAGES_PER_POLL = 1000
"""Of one socket, so that none starves the others."""
EVENTS_ROOM = 10_000
"""Batches that wait to be read; beyond, they are dropped and asked for."""
MAX_EVENT_BYTES = 64 * 2**20
MAX_ANSWER_BYTES = 256 * 2**20
"""Of one frame; an engine that sends a larger one is hung up on."""


@dataclass(frozen=True)
class _Source:
    """One engine."""

    events: Socket
    replay_endpoint: str | None


@dataclass(frozen=True)
class _Call:
    """A request on its way, on a socket of its own: so no answer is ever taken for that to another one."""

    request: Request
    socket: Socket


class KvEventsClient:
    """Follows engines for a directory. Not thread-safe: one thread follows, polls and closes."""

    def __init__(self, directory: KvDirectory, clock: Callable[[], float] = time.monotonic) -> None:
        self.directory = directory
        self._clock = clock
        self._context: zmq.Context[Socket] = zmq.Context()
        self._sources: dict[str, _Source] = {}
        self._calls: dict[str, _Call] = {}
        self._ticked_s = clock()

    def follow(self, engine: str, endpoint: str, replay_endpoint: str | None = None, topic: str = "") -> None:
        """Begins to follow an engine, which need not be there yet.

        Args:
            engine: any name, unique here.
            endpoint, replay_endpoint: as the engine was told to listen, such as tcp://10.0.0.7:5557.
            topic: beginning of the topics to listen to.
        """
        self.unfollow(engine)
        events = self._open(zmq.SUB, endpoint, MAX_EVENT_BYTES)
        events.subscribe(topic)
        self._sources[engine] = _Source(events, replay_endpoint)
        self.directory.add(engine)

    def unfollow(self, engine: str) -> None:
        """Stops following an engine and forgets it; no-op for unknown ones."""
        source = self._sources.pop(engine, None)
        if source is not None:
            source.events.close(linger=0)
            self._hang_up(engine)
            self.directory.remove(engine)

    def poll(self, timeout_s: float) -> int:
        """Takes in what has come, waiting for at most `timeout_s` for the first of it; to be called all the time.

        Returns:
            Number of messages.
        """
        by_socket = {source.events: engine for engine, source in self._sources.items()}
        by_socket |= {call.socket: engine for engine, call in self._calls.items()}
        ready = zmq.select(list(by_socket), [], [], timeout_s)[0]
        num_messages = sum(self._read(by_socket[opened], opened) for opened in ready)
        if self._clock() - self._ticked_s >= TICK_S:
            self._ticked_s = self._clock()
            self._make(self.directory.tick(self._ticked_s))
        return num_messages

    def close(self) -> None:
        """Hangs up on all. Idempotent."""
        self._context.destroy(linger=0)
        self._sources.clear()
        self._calls.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, kind: int, address: str, max_bytes: int) -> Socket:
        opened = self._context.socket(kind)
        opened.setsockopt(zmq.RCVHWM, EVENTS_ROOM)
        opened.setsockopt(zmq.MAXMSGSIZE, max_bytes)
        opened.setsockopt(zmq.IPV6, address.startswith("tcp://["))
        opened.connect(address)
        return opened

    def _read(self, engine: str, opened: Socket) -> int:
        """Reads what a socket holds; it may be closed meanwhile, as an answer is complete or of no use any more."""
        for num_messages in range(MESSAGES_PER_POLL):
            if opened.closed or not opened.poll(0):
                return num_messages
            message = self._understood(engine, opened, opened.recv_multipart())
            if message is not None:
                requests = self.directory.receive(engine, message, self._clock())
                self._make([(engine, request) for request in requests])
        return MESSAGES_PER_POLL

    def _understood(self, engine: str, opened: Socket, frames: list[bytes]) -> Message | None:
        """Frames as a message; None for those of another form, whose content will be missed and asked for."""
        call = self._calls.get(engine)
        if call is None or opened is not call.socket:
            return Live(_number(frames[1]), frames[2]) if len(frames) == 3 and len(frames[1]) >= 8 else None
        message = _answer(call.request, frames)
        if isinstance(message, ReplayEnd | Snapshot):
            self._hang_up(engine)
        return message

    def _make(self, requests: list[tuple[str, Request]]) -> None:
        for engine, request in requests:
            self._hang_up(engine)
            address = self._sources[engine].replay_endpoint
            if address is None:
                self.directory.receive(engine, Refused(request.request), self._clock())
                continue
            opened = self._open(zmq.DEALER, address, MAX_ANSWER_BYTES)
            opened.send_multipart([b"", _request_frame(request)])
            self._calls[engine] = _Call(request, opened)

    def _hang_up(self, engine: str) -> None:
        call = self._calls.pop(engine, None)
        if call is not None:
            call.socket.close(linger=0)


def _number(frame: bytes) -> int:
    """A sequence number. Frames may be longer: some engines put their epoch behind it."""
    return int.from_bytes(frame[:8], "big")


def _request_frame(request: Request) -> bytes:
    return SNAPSHOT_REQUEST if isinstance(request, AskSnapshot) else request.start.to_bytes(8, "big")


def _answer(request: Request, frames: list[bytes]) -> Message | None:
    """Part of an answer: `["", topic, number, batch]`, of which the last one is empty, or `["", number, epoch, batch,
    ...]`."""
    if isinstance(request, AskReplay):
        if len(frames) < 3 or not frames[-1]:
            return ReplayEnd(request.request)
        return Replayed(request.request, _number(frames[-2]), frames[-1])
    if len(frames) < 3 or len(frames[1]) != 8:
        return None
    return Snapshot(request.request, _number(frames[1]), frames[2], tuple(frames[3:]))
