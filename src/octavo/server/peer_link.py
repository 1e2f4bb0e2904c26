"""The wire between the API processes of a server: a pair of connected sockets, messages in both directions.

A message is its length (four bytes, big-endian) and a msgpack of `Message`. Whoever asks gets one answer. A side that
is gone is noticed by the end of the stream, however it went.
"""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum

import msgspec

_LENGTH_BYTES = 4


class Word(StrEnum):
    """What a message says."""

    ORDER = "order"
    """To a new process: what to serve."""
    READY = "ready"
    """From it: it accepts connections."""
    FAILED = "failed"
    """From it: it cannot start; the reason."""
    STOP = "stop"
    """To all: drain, and at the second time end."""
    DEAD = "dead"
    """To all: the engine is gone; the reason."""
    FIGURES = "figures"
    """A question: what have you counted?"""
    TOTALS = "totals"
    """A question from one of them, with its own figures: what have all counted?"""
    ANSWER = "answer"
    """To a question."""


class Message(msgspec.Struct, frozen=True, array_like=True):
    """One message."""

    word: Word
    call: int = 0
    """Of a question, and of its answer."""
    content: bytes = b""


Handler = Callable[[bytes], Awaitable[bytes | None]]
"""Takes a message's content; what it returns is the answer, if one is wanted."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


def framed(message: Message) -> bytes:
    """A message on the wire."""
    payload = _encode(message)
    return len(payload).to_bytes(_LENGTH_BYTES, "big") + payload


class PeerLink:
    """One end of the wire, for the event loop's thread."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def over(cls, end: socket.socket) -> "PeerLink":
        """Takes charge of one of two connected sockets."""
        return cls(*await asyncio.open_unix_connection(sock=end))

    async def receive(self) -> Message | None:
        """The next message; None: the other side is gone. Not beside `listen`."""
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES), "big")
            return _decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def listen(self, handlers: Mapping[Word, Handler]) -> None:
        """Has messages answered, each beside the others, until the other side is gone."""
        while (message := await self.receive()) is not None:
            if message.word is Word.ANSWER:
                call = self._calls.pop(message.call, None)
                if call is not None and not call.done():
                    call.set_result(message.content)
            else:
                task = asyncio.create_task(self._handle(message, handlers[message.word]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        for call in self._calls.values():
            call.cancel()

    async def _handle(self, message: Message, handler: Handler) -> None:
        answer = await handler(message.content)
        if message.call:
            self._send(Message(Word.ANSWER, message.call, answer or b""))

    def tell(self, word: Word, content: bytes = b"") -> None:
        """Sends a message that needs no answer."""
        self._send(Message(word, 0, content))

    async def ask(self, word: Word, content: bytes = b"") -> bytes:
        """Sends a question and waits for the answer.

        Raises:
            asyncio.CancelledError: the other side is gone.
        """
        call = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._calls[call] = answer
        self._send(Message(word, call, content))
        try:
            return await answer
        finally:
            self._calls.pop(call, None)

    def _send(self, message: Message) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):  # the other side is gone, which `listen` notices
            self._writer.write(framed(message))

    async def flush(self) -> None:
        """Waits until what was sent has left, or the other side is gone."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    def close(self) -> None:
        """Hangs up; the other side notices."""
        for task in self._tasks:
            task.cancel()
        self._writer.close()
