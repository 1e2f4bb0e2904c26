"""Publishes KV events beside the step loop. The loop writes changes down and rings; a thread does the rest, so that
neither followers that are slow nor those that are gone ever hold up a step."""

import logging
import time
import uuid
import weakref
from collections import deque
from threading import Thread, current_thread

import zmq

from octavo.config import KVEventsConfig
from octavo.engine.kv_answers import Answers
from octavo.engine.kv_sockets import EventSockets, Socket
from octavo.engine.output import KVStreamInfo
from octavo.kv.events import EventRecorder, EventStream, Translator, group_words
from octavo.kv.events.recorder import Change
from octavo.kv.events.stream import Frames, first_sequence
from octavo.kv.record import CacheObserver
from octavo.kv.spec import KVLayout

logger = logging.getLogger(__name__)

HEARTBEAT_S = 2.0
"""After so long without a batch an empty one goes out. Followers that wait for a sign of life wait for 5 s."""
MAX_WAITING_STEPS = 100_000
"""Steps whose changes may wait for the thread; it is hours behind then, and the stream is given up."""
TURN_PAUSE_S = 0.001
"""Pause between turns while there are requesters: the step loop needs the interpreter, too."""
GOODBYE_S = 5.0
"""How long the thread may take to end."""
LINGER_MS = 500
"""How long sent messages are still carried out after that."""

_BELL = "inproc://changes"


class KVPublisher:
    """The step loop's end of the stream."""

    def __init__(self, sockets: EventSockets, config: KVEventsConfig, layout: KVLayout, model: str) -> None:
        """Starts publishing.

        Args:
            sockets: of that configuration; this publisher closes them, unless it cannot start.
            model: its served name, for topics that hold it.

        Raises:
            ConfigError: the topic cannot be filled in.
        """
        topic = sockets.fill_in(config.kv_events_topic, model)
        stream = EventStream(
            Translator(group_words(layout), layout.block_size),
            epoch=uuid.uuid4().bytes,
            first_seq=first_sequence(time.time()),
            topic=topic,
            form=config.kv_events_format,
            buffer_steps=config.kv_events_buffer_steps,
        )
        self.info = KVStreamInfo(
            endpoint=sockets.endpoint,
            replay_endpoint=sockets.replay_endpoint,
            topic=topic.decode(),
            form=config.kv_events_format,
            epoch=stream.epoch.hex(),
        )
        self._recorder = EventRecorder()
        self._waiting: deque[list[Change]] = deque()
        heard = sockets.context.socket(zmq.PULL)
        heard.bind(_BELL)
        self._bell = sockets.context.socket(zmq.PUSH)
        self._bell.connect(_BELL)
        loop = _Loop(sockets, stream, heard, self._waiting)
        self._thread = Thread(target=loop.run, name="octavo-kv-events", daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, _end, self._thread, self._bell, sockets.context)

    @property
    def observer(self) -> CacheObserver:
        """To be told of all changes, in the thread that calls `flush`."""
        return self._recorder

    def flush(self) -> None:
        """Hands over what has changed since the last call; never waits."""
        changes = self._recorder.take()
        if not changes or not self._thread.is_alive():
            return
        self._waiting.append(changes)
        _ring(self._bell, _CHANGES)

    def close(self) -> None:
        """Publishes what is left and closes the sockets. Idempotent."""
        if self._end.alive:
            self.flush()
        self._end()


_CHANGES, _STOP = b"", b"stop"


def _ring(bell: Socket, message: bytes) -> None:
    try:
        bell.send(message, zmq.NOBLOCK)
    except zmq.Again:
        return  # a thousand rings have not been heard yet: the thread will look anyway


def _end(thread: Thread, bell: Socket, context: zmq.Context[Socket]) -> None:
    """The thread knows only its loop, so a publisher that is forgotten without `close` ends as well."""
    bell.setsockopt(zmq.SNDTIMEO, int(GOODBYE_S * 1000))
    try:
        if thread.is_alive():
            bell.send(_STOP)
    except zmq.Again:
        logger.warning("the thread that publishes KV events does not answer")
    if thread is not current_thread():
        thread.join(GOODBYE_S)
    bell.close(linger=0)
    if not thread.is_alive():
        context.term()


class _Loop:
    """The thread's end: sends what the engine has done, answers requests, beats when all is quiet."""

    def __init__(self, sockets: EventSockets, stream: EventStream, heard: Socket, waiting: deque[list[Change]]) -> None:
        self._sockets = sockets
        self._stream = stream
        self._heard = heard
        self._waiting = waiting
        self._answers = None if sockets.requests is None else Answers(sockets.requests, stream)
        self._sent_s = 0.0
        self._stopping = False

    def run(self) -> None:
        """Runs until told to stop."""
        try:
            self._send(self._stream.open(time.time()))
            while not self._stopping:
                self._turn()
        except Exception:
            logger.exception("KV events end here: followers will notice that the engine is silent")
        finally:
            self._waiting.clear()
            self._heard.close(linger=0)
            self._sockets.events.close(linger=LINGER_MS)
            if self._sockets.requests is not None:
                self._sockets.requests.close(linger=LINGER_MS)

    def _turn(self) -> None:
        self._wait()
        if len(self._waiting) > MAX_WAITING_STEPS:
            raise RuntimeError(f"the changes of {len(self._waiting)} steps are waiting to be published")
        while self._waiting:
            message = self._stream.publish(self._waiting.popleft(), time.time())
            if message is not None:
                self._send(message)
        if self._answers is not None:
            self._answers.turn(time.time())
        if time.monotonic() - self._sent_s >= HEARTBEAT_S:
            self._send(self._stream.beat(time.time()))

    def _wait(self) -> None:
        """Until something has happened, or it is time to beat."""
        quiet_s = max(0.0, self._sent_s + HEARTBEAT_S - time.monotonic())
        is_asked = self._answers is not None and self._answers.has_work
        zmq.select(self._sources(), [], [], TURN_PAUSE_S if is_asked else quiet_s)
        while self._heard.poll(0):
            self._stopping |= self._heard.recv() == _STOP

    def _sources(self) -> list[Socket]:
        requests = self._sockets.requests
        return [self._heard] if requests is None else [self._heard, requests]

    def _send(self, message: Frames) -> None:
        """To all followers; those whose queue is full miss it."""
        self._sockets.events.send_multipart(message)
        self._sent_s = time.monotonic()
