"""Answers those who ask a KV event stream for what they have missed."""

import logging
from collections import deque

from octavo.engine.binding import Socket
from octavo.kv.events import EventStream, Reply
from octavo.kv.events.stream import Frames

logger = logging.getLogger(__name__)

MAX_REQUESTS = 1000
"""Requests that may wait for their answer; who asks then asks in vain, and again."""
MESSAGES_PER_TURN = 64
"""Between two looks at what the engine has done."""


class Answers:
    """Requests in the order in which they came, answered one after the other and bit by bit."""

    def __init__(self, requests: Socket, stream: EventStream) -> None:
        """
        Args:
            requests: a ROUTER socket.
        """
        self._requests = requests
        self._stream = stream
        self._asked: deque[tuple[Frames, bytes]] = deque()
        """Addresses of requesters, with the empty frame at their end, and their requests."""
        self._reply: Reply | None = None
        """What is left of the answer to the first of them."""

    @property
    def has_work(self) -> bool:
        """Whether somebody waits for more of an answer."""
        return bool(self._asked)

    def turn(self, now_s: float) -> None:
        """Takes in requests and sends some messages. None of them is waited for: those to a requester that is gone, or
        that does not read, are dropped."""
        while self._requests.poll(0):
            self._take(self._requests.recv_multipart())
        if self._asked:
            self._go_on(*self._asked[0], now_s)

    def _take(self, frames: Frames) -> None:
        delimiter = frames.index(b"") if b"" in frames else -1
        if delimiter != len(frames) - 2 or len(self._asked) == MAX_REQUESTS:
            logger.debug("not answered: %s", frames)
            return
        self._asked.append((frames[: delimiter + 1], frames[-1]))

    def _go_on(self, address: Frames, request: bytes, now_s: float) -> None:
        reply = self._reply = self._reply or self._stream.answer(request, now_s)
        for _ in range(MESSAGES_PER_TURN):
            message = next(reply, _END)
            if message is _END:
                self._asked.popleft()
                self._reply = None
            if not message:
                return
            self._requests.send_multipart([*address, *message], copy=False)


_END: Frames = []
"""Comes behind the last message."""
