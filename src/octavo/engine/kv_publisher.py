"""Publishes KV events beside the step loop. The loop writes changes down and rings; a thread does the rest, so that
neither followers that are slow nor those that are gone ever hold up a step."""

import contextlib
import logging
import os
import time
import uuid
import weakref
from collections import deque
from collections.abc import Iterator
from threading import Thread, current_thread

import zmq

from octavo.config import KVEventsConfig
from octavo.engine.binding import Socket
from octavo.engine.kv_answers import Answers
from octavo.engine.kv_sockets import EventSockets
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
NAP_S = 0.005
"""While steps bring changes the thread looks for them so often, by itself: waking it would cost each step 20 us."""
AWAKE_S = 0.1
"""Without any for so long it goes to sleep, and has to be woken."""
TURN_PAUSE_S = 0.001
"""Pause between turns while there are requesters: the step loop needs the interpreter, too."""
GOODBYE_S = 5.0
"""How long the thread may take to end."""
LINGER_MS = 500
"""How long sent messages are still carried out after that."""


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
        self._inbox = Inbox()
        loop = _Loop(sockets, stream, self._inbox)
        self._thread = Thread(target=loop.run, name="octavo-kv-events", daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, _end, self._thread, self._inbox, sockets.context)

    @property
    def observer(self) -> CacheObserver:
        """To be told of all changes, in the thread that calls `flush`."""
        return self._recorder

    def flush(self) -> None:
        """Hands over what has changed since the last call; never waits."""
        changes = self._recorder.take()
        if changes and self._thread.is_alive():
            self._inbox.put(changes)

    def close(self) -> None:
        """Publishes what is left and closes the sockets. Idempotent."""
        if self._end.alive:
            self.flush()
        self._end()


def _end(thread: Thread, inbox: "Inbox", context: zmq.Context[Socket]) -> None:
    """The thread knows only its loop, so a publisher that is forgotten without `close` ends as well."""
    inbox.put(None)
    if thread is not current_thread():
        thread.join(GOODBYE_S)
    if thread.is_alive():
        logger.warning("the thread that publishes KV events does not end")
        return
    inbox.close()
    context.term()


class Inbox:
    """What waits for the thread, and a pipe that wakes it if it sleeps."""

    def __init__(self) -> None:
        self._waiting: deque[list[Change] | None] = deque()
        """Changes by step; None: the end."""
        self._sleeps = False
        """Whoever puts something in has to pull the rope."""
        self.bell, self._rope = os.pipe()
        """Can be read when it is time to wake up."""
        os.set_blocking(self.bell, False)

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, changes: list[Change] | None) -> None:
        """Never waits."""
        self._waiting.append(changes)
        if self._sleeps:
            self._sleeps = False
            os.write(self._rope, b"!")

    def take_all(self) -> Iterator[list[Change] | None]:
        """What is there, the oldest first."""
        while self._waiting:
            yield self._waiting.popleft()

    def fall_asleep(self) -> bool:
        """Before the thread waits for the bell; False if there is something to do. What is put in before this looks
        is seen here, and what comes later finds the sleeper."""
        self._sleeps = True
        if self._waiting:
            self._sleeps = False
        return self._sleeps

    def wake_up(self) -> None:
        """After that wait, whatever ended it. The bell may ring once more behind it, which ends the next wait early."""
        self._sleeps = False
        with contextlib.suppress(BlockingIOError):
            os.read(self.bell, 4096)

    def clear(self) -> None:
        """Throws away what nobody will take."""
        self._waiting.clear()

    def close(self) -> None:
        """For when nobody puts or takes any more."""
        os.close(self.bell)
        os.close(self._rope)


class _Loop:
    """The thread's end: sends what the engine has done, answers requests, beats when all is quiet."""

    def __init__(self, sockets: EventSockets, stream: EventStream, inbox: Inbox) -> None:
        self._sockets = sockets
        self._stream = stream
        self._inbox = inbox
        self._answers = None if sockets.requests is None else Answers(sockets.requests, stream)
        self._sources = [] if sockets.requests is None else [sockets.requests]
        self._sent_s = 0.0
        self._changed_s = float("-inf")
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
            self._inbox.clear()
            self._sockets.events.close(linger=LINGER_MS)
            if self._sockets.requests is not None:
                self._sockets.requests.close(linger=LINGER_MS)

    def _turn(self) -> None:
        self._wait()
        if len(self._inbox) > MAX_WAITING_STEPS:
            raise RuntimeError(f"the changes of {len(self._inbox)} steps are waiting to be published")
        for changes in self._inbox.take_all():
            self._publish(changes)
        if self._answers is not None:
            self._answers.turn(time.time())
        if time.monotonic() - self._sent_s >= HEARTBEAT_S:
            self._send(self._stream.beat(time.time()))

    def _wait(self) -> None:
        """Until something has happened, or it is time to look or to beat."""
        now_s = time.monotonic()
        if self._answers is not None and self._answers.has_work:
            zmq.select(self._sources, [], [], TURN_PAUSE_S)
        elif now_s - self._changed_s < AWAKE_S:
            self._nap()
        elif self._inbox.fall_asleep():
            zmq.select([*self._sources, self._inbox.bell], [], [], max(0.0, self._sent_s + HEARTBEAT_S - now_s))
            self._inbox.wake_up()

    def _nap(self) -> None:
        if self._sources:
            zmq.select(self._sources, [], [], NAP_S)
        else:
            time.sleep(NAP_S)  # zmq.select would not wait for nothing

    def _publish(self, changes: list[Change] | None) -> None:
        if changes is None:
            self._stopping = True
            return
        self._changed_s = time.monotonic()
        message = self._stream.publish(changes, time.time())
        if message is not None:
            self._send(message)

    def _send(self, message: Frames) -> None:
        """To all followers; those whose queue is full miss it."""
        self._sockets.events.send_multipart(message)
        self._sent_s = time.monotonic()
